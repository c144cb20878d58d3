"""The learning rate of each step: linear warm-up, then half a cosine down to the least rate."""

import math

from graphpar.runtime.settings import Settings


def learning_rate(step: int, settings: Settings) -> float:
    """The rate of `step`, counted from 0. Warm-up ends, and the cosine starts, at `lr`; the last step has `min_lr`."""
    if step < settings.warmup:
        return settings.lr * (step + 1) / settings.warmup
    done = (step - settings.warmup) / max(1, settings.steps - 1 - settings.warmup)
    return settings.min_lr + 0.5 * (settings.lr - settings.min_lr) * (1 + math.cos(math.pi * min(1.0, done)))
