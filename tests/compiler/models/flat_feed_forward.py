"""The feed-forward sees one dimension of tokens, as in OPT and in many mixtures of experts."""

from parts import Block, Decoder


class Flat(Block):
    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        flat = self.norm2(x).flatten(0, 1)
        return x + self.mlp(flat).view(x.shape)


class Model(Decoder):
    def __init__(self):
        super().__init__([Flat() for _ in range(2)])


def model():
    return Model()
