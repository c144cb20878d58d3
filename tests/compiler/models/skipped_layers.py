"""Every second block is run, and one of them twice."""

from parts import Block, Decoder


class Model(Decoder):
    def run(self, x):
        for block in self.blocks[::2]:
            x = block(x)
        return self.blocks[2](x)


def model():
    return Model([Block() for _ in range(5)])
