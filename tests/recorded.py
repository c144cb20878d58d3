"""Recording the constructor of a plain model as an init.json document, for tests."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode


class _Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.ops: list[dict[str, Any]] = []
        self.ids: dict[int, int] = {}
        self.alive: list[Tensor] = []  # keeps id() unique

    def tensor_id(self, tensor: Tensor) -> int:
        if id(tensor) not in self.ids:
            self.ids[id(tensor)] = len(self.ids)
            self.alive.append(tensor)
        return self.ids[id(tensor)]

    def recognise(self, tensor: Tensor) -> None:
        """A Parameter is made from a tensor without a dispatched operation: it is known by its memory."""
        for held in self.alive:
            if held.data_ptr() == tensor.data_ptr() and held.shape == tensor.shape:
                self.ids.setdefault(id(tensor), self.ids[id(held)])
                self.alive.append(tensor)
                return

    def document(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            self.recognise(value)
            if id(value) not in self.ids:
                dtype = str(value.dtype).removeprefix("torch.")
                return {"constant": value.flatten().tolist(), "dtype": dtype, "shape": list(value.shape)}
            return {"tensor": self.ids[id(value)]}
        if isinstance(value, list | tuple):
            return [self.document(item) for item in value]
        for kind, name in ((torch.dtype, "dtype"), (torch.memory_format, "memory_format"), (torch.layout, "layout")):
            if isinstance(value, kind):
                return {name: str(value).removeprefix("torch.")}
        if isinstance(value, torch.device):
            return {"device": str(value)}
        return value

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        op = {
            "op": str(func),
            "args": self.document(list(args)),
            "kwargs": {key: self.document(value) for key, value in (kwargs or {}).items()},
        }
        result = func(*args, **(kwargs or {}))
        outputs = [result] if isinstance(result, Tensor) else list(result or ())
        self.ops.append({**op, "out": [self.tensor_id(tensor) for tensor in outputs]})
        return result


def recorded(build: Callable[[], nn.Module]) -> tuple[dict[str, Any], nn.Module]:
    """The tape of `build`, as JSON values, and the model that it made."""
    with _Recorder() as recorder:
        model = build()
    state: dict[str, int] = {}
    found = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    for name, tensor in found:
        recorder.recognise(tensor)
        state[name] = recorder.ids[id(tensor)]
    return {"version": 1, "ops": recorder.ops, "state": state}, model
