"""Blocks that are given a Python number each, and a tensor that changes half way."""

from parts import Block, Decoder


class Given(Block):
    def forward(self, x, first, factor=1.0):
        return super().forward(x) * factor + 0.1 * first


class Model(Decoder):
    def run(self, x):
        first = x
        for i, block in enumerate(self.blocks):
            x = block(x, first, factor=1.0 if i < 3 else 0.5)
            if i == 1:
                first = x
        return x


def model():
    return Model([Given() for _ in range(5)])
