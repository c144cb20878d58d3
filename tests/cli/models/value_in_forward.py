"""A number is read out of a tensor."""

from small import Small


class Model(Small):
    def mix(self, x):
        return super().mix(x)[:, : int(x.sum())]
