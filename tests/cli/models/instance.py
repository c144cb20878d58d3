"""The model has been built already."""

from small import Small


class Model(Small):
    pass


model = Model()
