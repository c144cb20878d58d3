"""Attention whose heads go back to the stream as they are: heads times d_head is d_model."""

import torch.nn.functional as F
from parts import Attention, Block, Decoder


class Bare(Attention):
    def __init__(self):
        super().__init__()
        del self.o

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (w(x).view(B, T, self.heads, C // self.heads).transpose(1, 2) for w in (self.q, self.k, self.v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C)


def model():
    return Decoder([Block(32, Bare()) for _ in range(2)])
