"""A loss after every block, over the same labels."""

from parts import Block, Decoder


class Model(Decoder):
    def forward(self, input_ids, labels):
        x, total = self.embed(input_ids), 0
        for block in self.blocks:
            x = block(x)
            total = total + self.loss(self.head(self.norm(x)), labels)
        return total / len(self.blocks)


def model():
    return Model([Block() for _ in range(2)])
