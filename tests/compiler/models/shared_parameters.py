"""Two blocks, each with norms of its own, around one attention and one MLP that both share."""

from parts import MLP, Attention, Block, Decoder


def model():
    attention, mlp = Attention(), MLP()
    return Decoder([Block(32, attention, mlp), Block(32, attention, mlp), Block(32, attention, mlp)])
