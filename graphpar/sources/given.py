"""What the torch function that failed was given: its own message often leaves the sizes out."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode


class Given(TorchFunctionMode):
    """While it is entered, an exception of a torch function has a note with what the function was given."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = kwargs or {}
        try:
            return func(*args, **named)
        except Exception as error:
            if not getattr(error, "__notes__", None):
                for note in _notes(func.__name__, args, named):
                    error.add_note(note)
            raise


def notes(error: Exception) -> tuple[str, ...]:
    """What an exception was given."""
    return tuple(getattr(error, "__notes__", ()))


def _notes(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
    shown = [*map(_spell, args), *(f"{key}={_spell(value)}" for key, value in kwargs.items() if value is not None)]
    said = [f"{name}({', '.join(shown)})"]
    if name == "topk":
        x, k, dim = _chosen(*args, **kwargs)
        said.append(f"it chooses {k} of {x.shape[dim]}, and can choose {x.shape[dim]} at most")
    return said


def _chosen(input: Tensor, k: int, dim: int = -1, *_: object, **__: object) -> tuple[Tensor, int, int]:  # noqa: A002 - torch's name
    return input, k, dim


def _spell(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_spell, value))}]"
    return value.__name__ if inspect.isfunction(value) or inspect.isclass(value) else repr(value)
