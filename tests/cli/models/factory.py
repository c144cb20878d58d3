"""A function makes the model."""

from small import Small


class Model(Small):
    def __init__(self, width):
        super().__init__(width)


def build():
    model = Model(width=24)
    return model


def load_data():
    return [1, 2, 3]


def lengths() -> int:
    return 3
