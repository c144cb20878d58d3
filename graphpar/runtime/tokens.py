"""Token ids from text files, folders of them, or .bin files of uint16."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphpar.runtime.problems import UsageError

_SCAN = 1 << 24  # tokens looked at together when searching the largest
_SCAN_LIMIT = 1 << 28  # beyond this many, each batch is checked instead


def read_tokens(paths: Sequence[Path], tokenizer: Path | None, vocab: int | None) -> Tensor:
    """All tokens of all files in order, one dim, of an unsigned type (memory-mapped for a single .bin file).

    Raises UsageError for what is missing, empty, mixed, or beyond the vocabulary.
    """
    files = [file for path in paths for file in _files(path)]
    binary = [file for file in files if file.suffix == ".bin"]
    if binary and len(binary) < len(files):
        text = next(file for file in files if file not in binary)
        raise UsageError(f"--data mixes .bin files ({binary[0]}) with text ({text})")
    if binary and tokenizer:
        raise UsageError(f"--tokenizer has nothing to do: {binary[0]} already holds tokens")
    parts = [_binary(file) for file in files] if binary else _text(files, tokenizer)
    tokens = parts[0] if len(parts) == 1 else torch.cat(parts)
    if vocab is not None and tokens.numel() <= _SCAN_LIMIT:
        check_vocab(tokens, vocab, "--data")
    return tokens


def check_vocab(tokens: Tensor, vocab: int, where: str) -> None:
    """Raise UsageError, naming the largest token and its position, unless all tokens are below `vocab`."""
    for start in range(0, tokens.numel(), _SCAN):
        part = tokens.flatten()[start : start + _SCAN].to(torch.int64)
        largest, at = part.max(dim=0)
        if largest >= vocab:
            raise UsageError(
                f"{where} holds token {int(largest)} at position {start + int(at)},"
                f" but the model's vocabulary has {vocab} (0 to {vocab - 1})"
            )


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(file for file in path.rglob("*") if file.is_file() and not file.name.startswith("."))
        if not found:
            raise UsageError(f"--data {path} is a folder without files")
        return found
    if not path.is_file():
        raise UsageError(f"--data {path} does not exist")
    return [path]


def _binary(path: Path) -> Tensor:
    size = path.stat().st_size
    if size == 0 or size % 2:
        raise UsageError(f"--data {path} has {size} bytes, which is no list of uint16 tokens")
    return torch.from_file(str(path), shared=False, size=size // 2, dtype=torch.uint16)


def _text(files: Sequence[Path], tokenizer: Path | None) -> list[Tensor]:
    if tokenizer is None:
        data = [file.read_bytes() for file in files]
        return [torch.frombuffer(bytearray(b"".join(data)), dtype=torch.uint8) if any(data) else torch.empty(0)]
    encoder = _encoder(tokenizer)
    return [torch.tensor(encoder.encode(_decoded(file)).ids, dtype=torch.int32) for file in files]


def _decoded(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"--data {file} is not UTF-8 text: {error.reason} at byte {error.start}") from None


def _encoder(path: Path) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise UsageError("--tokenizer needs the package `tokenizers`; without it, bytes are tokens") from None
    if not path.is_file():
        raise UsageError(f"--tokenizer {path} does not exist")
    return Tokenizer.from_file(str(path))
