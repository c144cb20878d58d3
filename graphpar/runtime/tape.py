"""The source model's constructor as a tape of tensor operations: init.json."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphpar.runtime.plan import PlanError

Tensors = dict[int, Tensor]


@dataclass(frozen=True)
class Op:
    """One line of the tape: a torch operator, its arguments as JSON, and the ids of what it returns."""

    name: str  # "aten.normal_.default", or "init.trunc_normal_" for a function of torch.nn.init
    args: Sequence[Any]
    kwargs: dict[str, Any]
    out: tuple[int, ...]

    @property
    def base_name(self) -> str:
        """`normal_` of `aten.normal_.default`."""
        return self.name.split(".")[1]

    @property
    def is_in_place(self) -> bool:
        """Whether it writes into its first argument."""
        return self.base_name.endswith("_")

    @property
    def is_random(self) -> bool:
        """Whether it draws from the generator."""
        return self.name.startswith("init.") or torch.Tag.nondeterministic_seeded in self._operator.tags

    @property
    def arguments(self) -> list[int]:
        """The ids of its tensor arguments, first argument first."""
        return list(_ids([self.args, self.kwargs]))

    def run(self, tensors: Tensors, device: str) -> None:
        """Run it on `device`, reading arguments from `tensors` and putting results there."""
        args = [_value(arg, tensors, device) for arg in self.args]
        kwargs = {key: _value(arg, tensors, device) for key, arg in self.kwargs.items()}
        if self._makes_tensors:
            kwargs["device"] = torch.device(device)
        result = self._operator(*args, **kwargs)
        for id_, tensor in zip(self.out, _flat(result), strict=True):
            tensors[id_] = tensor

    @property
    def _makes_tensors(self) -> bool:
        """Whether its results lie where it is told, not where its arguments do."""
        if self.name.startswith("init.") or self.arguments:
            return False
        return any(argument.name == "device" for argument in self._operator._schema.arguments)

    @property
    def _operator(self) -> Any:
        # how often trunc_normal_ draws depends on what it drew, so it is no list of operators
        if self.name.startswith("init."):
            return getattr(torch.nn.init, self.base_name)
        found: Any = torch.ops
        for part in self.name.split("."):
            found = getattr(found, part)
        return found


@dataclass(frozen=True)
class Tape:
    """The constructor's operations in order, and which tensor each name of the state dict is."""

    ops: tuple[Op, ...]
    state: dict[str, int]


def read_tape(path: Path) -> Tape:
    """Read an init.json. Raises PlanError when it is missing or of another version."""
    try:
        document = json.loads(path.read_text())
    except FileNotFoundError:
        raise PlanError(f"{path} is missing: compile the model again") from None
    if document["version"] != 1:
        raise PlanError(f"{path} has version {document['version']}; this runtime reads version 1")
    ops = tuple(Op(op["op"], op["args"], op["kwargs"], tuple(op["out"])) for op in document["ops"])
    return Tape(ops, document["state"])


def _value(argument: Any, tensors: Tensors, device: str) -> Any:
    """The argument that a piece of JSON stands for."""
    if isinstance(argument, list):
        return [_value(item, tensors, device) for item in argument]
    if not isinstance(argument, dict):
        return argument
    match argument:
        case {"tensor": id_}:
            return tensors[id_]
        case {"constant": values, "dtype": dtype, "shape": shape}:
            return torch.tensor(values, dtype=_torch(dtype)).reshape(shape).to(device)
        case {"device": _}:
            return torch.device(device)  # where it is replayed, not where it was recorded
        case {"dtype": name} | {"memory_format": name} | {"layout": name}:
            return _torch(name)
        case {"generator": _}:
            return None  # torch's default one
        case _:
            raise PlanError(f"init.json holds an argument of unknown kind: {argument}")


def _torch(name: str | None) -> Any:
    return None if name is None else getattr(torch, name.removeprefix("torch."))


def _ids(argument: Any) -> Iterator[int]:
    match argument:
        case {"tensor": id_}:
            yield id_
        case dict():
            yield from _ids(list(argument.values()))
        case list() | tuple():
            for item in argument:
                yield from _ids(item)
        case _:
            return


def _flat(result: Any) -> Iterator[Tensor]:
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, list | tuple):
        for item in result:
            yield from _flat(item)
