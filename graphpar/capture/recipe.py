"""How the source model draws its initial values: the tape of its constructor.

The model is built on tensors without storage while every tensor op of its constructor is recorded. Replaying the tape
on a rank gives exactly the values that the constructor would give for the same seed, one tensor at a time; replaying
the part that buffers depend on gives their values at compile time.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from graphpar.runtime.tape import Op, Tensors

# Ops that only give a tensor values: on one without storage there is nothing to do.
_FILLS = frozenset(
    {
        torch.ops.aten.normal_.default,
        torch.ops.aten.uniform_.default,
        torch.ops.aten.zero_.default,
        torch.ops.aten.fill_.Scalar,
    }
)


@dataclass(frozen=True)
class Built:
    """A model without storage, and the tape that gives its tensors their values."""

    model: nn.Module
    tape: dict[str, Any]
    mode: FakeTensorMode


def build(construct: Callable[[], nn.Module]) -> Built:
    """Run the constructor under recording.

    Raises whatever the constructor raises, also when it needs the value of a tensor that has none yet.
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    recorder = _Recorder()
    with mode, recorder, recorder.whole_initialisers(), _no_conversions():
        model = construct()
    return Built(model, recorder.tape(model), mode)


class _Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.ops: list[dict[str, Any]] = []
        self.ids: dict[int, int] = {}
        self.keep: list[Tensor] = []

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        filled = func in _FILLS and isinstance(args[0], FakeTensor)
        result = args[0] if filled else func(*args, **kwargs)
        if isinstance(result, Tensor) or (
            isinstance(result, (tuple, list)) and any(isinstance(r, Tensor) for r in result)
        ):
            self.record(func, args, kwargs, result)
        return result

    @contextmanager
    def whole_initialisers(self) -> Iterator[None]:
        """Record `trunc_normal_` as one op: it draws until all values fit, so its ops depend on what is drawn."""
        original = nn.init.trunc_normal_

        def whole(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            if not isinstance(tensor, FakeTensor):
                return original(tensor, *args, **kwargs)
            words = {k: v for k, v in kwargs.items() if k != "generator"}
            at = self.identify(tensor)
            self.ops.append({"op": "init.trunc_normal_", "args": [{"tensor": at}, *args], "kwargs": words, "out": [at]})
            return tensor

        nn.init.trunc_normal_ = whole
        try:
            yield
        finally:
            nn.init.trunc_normal_ = original

    def record(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        encoded = [self.encode(a) for a in args]
        words = {k: self.encode(v) for k, v in kwargs.items() if v is not None and k not in ("device", "pin_memory")}
        out = [self.identify(r) for r in (result if isinstance(result, (tuple, list)) else (result,))]
        self.ops.append({"op": str(func), "args": encoded, "kwargs": words, "out": out})

    def identify(self, tensor: Tensor) -> int:
        if id(tensor) not in self.ids:
            self.ids[id(tensor)] = len(self.keep)
            self.keep.append(tensor)
        return self.ids[id(tensor)]

    def encode(self, value: Any) -> Any:
        match value:
            case Tensor():
                if id(value) in self.ids or isinstance(value, FakeTensor):
                    return {"tensor": self.identify(value)}
                return self.constant(value)
            case torch.dtype():
                return {"dtype": _word(value)}
            case torch.device() | torch.Generator():
                return None
            case torch.memory_format():
                return {"memory_format": _word(value)}
            case torch.layout():
                return {"layout": _word(value)}
            case list() | tuple() | torch.Size():
                return [self.encode(v) for v in value]
            case _:
                return value

    def tape(self, model: nn.Module) -> dict[str, Any]:
        tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        state = {name: self.locate(tensor) for name, tensor in tensors.items()}
        return {"version": 1, "ops": self.ops, "state": state}

    def locate(self, tensor: Tensor) -> int:
        """The id of a parameter: itself, or the tensor it was made from (`Parameter(t)` detaches `t`)."""
        for candidate in (tensor, tensor.data):
            if id(candidate) in self.ids:
                return self.ids[id(candidate)]
        made = self.identify(tensor)  # made outside of the constructor: a constant of it
        self.ops.append({"op": "aten.clone.default", "args": [self.constant(tensor)], "kwargs": {}, "out": [made]})
        return made

    def constant(self, value: Tensor) -> dict[str, Any]:
        """A tensor that exists already, by value."""
        with _disable_current_modes():
            data = value.detach().tolist()
        return {"constant": data, "dtype": _word(value.dtype), "shape": list(value.shape)}


@contextmanager
def _no_conversions() -> Iterator[None]:
    """Let `model.float()` and `.to(device)` pass where they change nothing: torch fails on tensors without storage.

    What they do change would have to stay tied to every other name of it, which a new tensor is not: it is refused.
    """
    original = nn.Module._apply

    def unchanged(module: nn.Module, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
        parameters = [p for p in module._parameters.values() if p is not None]
        for child in module.children() if recurse else ():
            child._apply(fn)
        if not any(isinstance(p, FakeTensor) for p in parameters):
            return original(module, fn, recurse=False)
        with torch.no_grad():
            if any(fn(p) is not p for p in parameters):
                raise TypeError(
                    "a module that exists is not converted; build it in that dtype: nn.Linear(.., dtype=..)"
                )
        module._buffers.update({name: None if b is None else fn(b) for name, b in module._buffers.items()})
        return module

    setattr(nn.Module, "_apply", unchanged)  # noqa: B010
    try:
        yield
    finally:
        setattr(nn.Module, "_apply", original)  # noqa: B010


def _word(value: object) -> str:
    return str(value).removeprefix("torch.")


def replay(tape: Mapping[str, Any], names: Sequence[str]) -> dict[str, Tensor]:
    """The values of the named tensors, by running only the ops that they depend on.

    Meant for buffers: values that depend on random draws come out as for an arbitrary seed.
    """
    wanted = {tape["state"][name] for name in names}
    ops = [Op(op["op"], op["args"], op["kwargs"], tuple(op["out"])) for op in tape["ops"]]
    values: Tensors = {}
    with torch.no_grad():
        for op in _needed(ops, wanted):
            op.run(values, "cpu")
    return {name: values[tape["state"][name]] for name in names}


def _needed(ops: Sequence[Op], wanted: set[int]) -> list[Op]:
    groups = _Groups()
    for op in ops:
        for out in op.out:
            for source in op.arguments:
                groups.join(out, source)
    roots = {groups.find(w) for w in wanted}
    return [op for op in ops if any(groups.find(o) in roots for o in op.out)]


class _Groups:
    """Tensors that are connected by some op, found by union."""

    def __init__(self) -> None:
        self.parent: dict[int, int] = {}

    def find(self, item: int) -> int:
        while self.parent.setdefault(item, item) != item:
            item = self.parent[item]
        return item

    def join(self, a: int, b: int) -> None:
        self.parent[self.find(a)] = self.find(b)
