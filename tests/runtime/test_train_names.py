"""The saved weights have every name of the source's state_dict, whatever the program reads of them."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from started import start
from torch import nn

from graphpar.builds.make import make
from graphpar.sources.door import open_model

MODEL = """
import torch, torch.nn as nn, torch.nn.functional as F

class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(256, 8)
        self.up = nn.Linear(8, 8)
        self.head = nn.Linear(8, 256, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("unread", torch.ones(4, 4).tril())
        self.register_buffer("twin", self.unread)
        self.register_buffer("table", torch.arange(8.0), persistent=False)

    def forward(self, idx, targets):
        x = self.up(self.embed(idx)) + self.table
        return F.cross_entropy(self.head(x).flatten(0, 1), targets.flatten())
"""
SPEC = "version: 1\nmesh: {tp: 2}\nlayout:\n  - vocab: tp\n"
STEP = ["--steps", "1", "--seq", "8", "--batch", "4", "--threads", "1"]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build, and one step of training in it."""
    folder = tmp_path_factory.mktemp("tied")
    (folder / "tiny.py").write_text(MODEL)
    (folder / "spec.yaml").write_text(SPEC)
    make(str(folder / "tiny.py"), str(folder / "spec.yaml"), folder / "build")
    (folder / "build" / "text.txt").write_text("to be or not to be, that is the question. " * 20)
    ended = start(folder / "build", *STEP)
    assert ended.code == 0, ended.err
    return folder / "build"


def source(build: Path) -> nn.Module:
    return open_model(str(build.parent / "tiny.py")).construct()


def test_the_source_loads_them_strictly(build: Path) -> None:
    model, saved = source(build), load_file(build / "run" / "model.safetensors")
    assert saved.keys() == model.state_dict().keys()
    model.load_state_dict(saved, strict=True)
    assert model.head.weight is model.embed.weight
    assert torch.equal(model.unread, torch.ones(4, 4).tril())


def test_a_file_of_the_source_starts_a_run(build: Path) -> None:
    state = {name: tensor.clone() for name, tensor in source(build).state_dict().items()}
    save_file(state, build / "source.safetensors")
    ended = start(build, *STEP, "--no-save", "--out", "again", "--load", "source.safetensors")
    assert ended.code == 0, ended.err
