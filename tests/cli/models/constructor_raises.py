"""The constructor refuses its arguments."""

from small import Small


class Model(Small):
    def __init__(self, width=50, heads=4):
        super().__init__(width)
        self.check(width, heads)

    def check(self, width, heads):
        if width % heads:
            raise ValueError(f"{heads} heads do not divide a width of {width}")
