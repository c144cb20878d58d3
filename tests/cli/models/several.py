"""Several objects could be the model."""

from small import Small


class Wide(Small):
    pass


class Deep(Small):
    pass


def tiny():
    return Wide(width=24)
