"""Marker ops that stand in the exported graph for the boundary of a repeated block, or for a whole block.

`enter` and `leave` frame the block that is traced; `block` stands for a sibling proven to be the same program. They
exist only between export and translation.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_LIBRARY = torch.library.Library("graphpar", "DEF")
_LIBRARY.define("enter(Tensor[] values, int site) -> Tensor[]")
_LIBRARY.define("leave(Tensor[] values, int site) -> Tensor[]")
_LIBRARY.define("block(Tensor[] values, int site, int[] like) -> Tensor[]")


def _same(values: Sequence[Tensor], site: int) -> list[Tensor]:
    return [torch.empty_like(v) for v in values]


def _like(values: Sequence[Tensor], site: int, like: Sequence[int]) -> list[Tensor]:
    return [torch.empty_like(values[i]) for i in like]


_LIBRARY.impl("enter", _same, "Meta")
_LIBRARY.impl("leave", _same, "Meta")
_LIBRARY.impl("block", _like, "Meta")

enter = torch.ops.graphpar.enter
leave = torch.ops.graphpar.leave
block = torch.ops.graphpar.block
