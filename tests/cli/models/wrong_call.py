"""A method is called with an argument too many."""

from small import Small


class Model(Small):
    def mix(self, x):
        return super().mix(x, 3)
