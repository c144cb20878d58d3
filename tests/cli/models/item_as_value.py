"""Logits are scaled by a number that is read out of them."""

from small import Small


class Model(Small):
    def mix(self, x):
        scale = x.std().item()
        return super().mix(x) / scale
