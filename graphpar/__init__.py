"""Compile a single-device PyTorch model and a spec of named dimensions into readable distributed PyTorch."""

__version__ = "0.1.0"
