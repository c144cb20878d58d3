"""Which code runs depends on activations."""

from small import Small


class Model(Small):
    def mix(self, x):
        if x.abs().max() > 100:
            x = x / 2
        return super().mix(x)
