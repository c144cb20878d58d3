"""There is no model in it."""

WIDTH = 48


def build():
    return WIDTH


class Config:
    pass
