"""The model needs a configuration."""

from dataclasses import dataclass

from small import Small


@dataclass
class Config:
    width: int = 48


class Model(Small):
    def __init__(self, config):
        super().__init__(config.width)
