"""Nothing is wrong with it."""

from small import Small


class Model(Small):
    pass
