"""Blocks that carry two values, swap them, and return statistics besides."""

from parts import Block, Decoder


class Pair(Block):
    def forward(self, x, y):
        z = super().forward(x)
        return y + 0.5 * z, z, z.pow(2).mean()


class Model(Decoder):
    def forward(self, input_ids, labels):
        x = y = self.embed(input_ids)
        penalty = 0.0
        for block in self.blocks:
            x, y, size = block(x, y)
            penalty = penalty + size
        return self.loss(self.head(self.norm(x + y)), labels) + 1e-3 * penalty


def model():
    return Model([Pair() for _ in range(3)])
