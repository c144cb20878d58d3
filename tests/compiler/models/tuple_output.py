"""Blocks that return (x, None) or a dict, as models with caches do; dropout between."""

from parts import Block, Decoder
from torch import nn


class Cached(Block):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.1)

    def forward(self, x, cache=None, use_cache=False):
        return {"x": self.drop(super().forward(x)), "cache": (x,) if use_cache else None}


class Model(Decoder):
    def run(self, x):
        for block in self.blocks:
            out = block(x, use_cache=False)
            x = out["x"]
        return x


def model():
    return Model([Cached() for _ in range(3)])
