"""The gradient of a parameter is changed when it is there."""

from small import Small


class Model(Small):
    def __init__(self):
        super().__init__()
        self.embed.weight.register_hook(lambda gradient: gradient * 0.1)
