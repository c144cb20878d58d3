"""Reading and writing .safetensors files one tensor at a time, with torch alone.

The format (https://huggingface.co/docs/safetensors): eight bytes with the length of a JSON header, little-endian; the
header, padded with spaces, which gives each name's dtype, shape and byte range; then the bytes, without gaps.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from graphpar.runtime.problems import UsageError

_DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
    "U64": torch.uint64, "U32": torch.uint32, "U16": torch.uint16, "U8": torch.uint8, "BOOL": torch.bool,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "C64": torch.complex64,
}  # fmt: skip
_CODES = {dtype: code for code, dtype in _DTYPES.items()}
_ALIGNED = 8


Shapes = Mapping[str, tuple[torch.dtype, tuple[int, ...]]]


@dataclass(frozen=True)
class Layout:
    """The header of a file: what each name is, in the order of the bytes, and free text."""

    tensors: Shapes
    metadata: Mapping[str, str]


class TensorFile:
    """An open file, mapped into memory: bytes are read when a tensor's values are."""

    def __init__(self, path: Path) -> None:
        """Raises UsageError when `path` is missing or no such file."""
        self.path = path
        try:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError:
            raise UsageError(f"{path} does not exist") from None
        except (ValueError, OSError) as error:
            raise UsageError(f"{path} cannot be read: {error}") from None
        self._entries, self._start = self._header()
        self.metadata: dict[str, str] = self._entries.pop("__metadata__", {})

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its tensors."""
        return tuple(self._entries)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor."""
        return tuple(self._entries[name]["shape"])

    def read(self, name: str) -> Tensor:
        """A tensor over the file's own pages: only what is copied out of it is read."""
        entry = self._entries[name]
        first, last = entry["data_offsets"]
        dtype = _DTYPES[entry["dtype"]]
        if last - first != prod(entry["shape"]) * dtype.itemsize or self._start + last > len(self._map):
            raise UsageError(f"{self.path}: {name} is cut short; the file is broken")
        if first == last:
            return torch.empty(entry["shape"], dtype=dtype)
        with warnings.catch_warnings():
            # the map is read-only and torch cannot say so; nothing here writes to it
            warnings.filterwarnings("ignore", message="The given buffer is not writable")
            flat = torch.frombuffer(self._map, dtype=dtype, count=prod(entry["shape"]), offset=self._start + first)
        return flat.view(entry["shape"])

    def _header(self) -> tuple[dict[str, Any], int]:
        length = int.from_bytes(self._map[:8], "little")
        try:
            return json.loads(self._map[8 : 8 + length]), 8 + length
        except ValueError:
            raise UsageError(f"{self.path} is no .safetensors file") from None


def write(file: BinaryIO, layout: Layout, tensor: Callable[[str], Tensor]) -> None:
    """Write a file, asking `tensor` for one tensor at a time, in the layout's order."""
    header: dict[str, Any] = {"__metadata__": dict(layout.metadata)}
    end = 0
    for name, (dtype, shape) in layout.tensors.items():
        start, end = end, end + prod(shape) * dtype.itemsize
        header[name] = {"dtype": _CODES[dtype], "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNED)
    file.write(len(text).to_bytes(8, "little"))
    file.write(text)
    for name, (dtype, shape) in layout.tensors.items():
        value = tensor(name)
        if value.dtype != dtype or tuple(value.shape) != shape:
            raise ValueError(f"{name} is {value.dtype} {tuple(value.shape)}, but the header says {dtype} {shape}")
        _write_bytes(file, value)


def aligned(tensors: Shapes) -> Shapes:
    """The same tensors, widest dtype first, so that each starts at a multiple of its item size."""
    return dict(sorted(tensors.items(), key=lambda item: (-item[1][0].itemsize, item[0])))


def _write_bytes(file: BinaryIO, tensor: Tensor) -> None:
    held = tensor.detach().cpu().contiguous()
    size = held.numel() * held.element_size()
    if size:
        file.write(memoryview((ctypes.c_char * size).from_address(held.data_ptr())))
