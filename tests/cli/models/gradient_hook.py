"""The gradient of a value is changed on its way."""

from small import Small


class Model(Small):
    def mix(self, x):
        if x.requires_grad:
            x.register_hook(lambda gradient: gradient * 0.1)
        return super().mix(x)
