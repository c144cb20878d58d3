"""`graphpar demo`: a small model of the transformers library, compiled, trained on real text, verified and drawn,
and once more in the stages of a pipeline."""

from graphpar.demo.command import command

__all__ = ["command"]
