"""`graphpar demo`: a small model of the transformers library, compiled, trained on real text, verified and drawn."""

from graphpar.demo.command import command

__all__ = ["command"]
