"""What an export would lose without a word: gradients of the model's own making, and dropout that never ends.

An exported graph has forward operations, and their backward is derived from them. Whatever a model does to its
gradients by other means is not in it, so it is refused where it stands.
"""

# Hooks are read where torch keeps them.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from graphpar.capture.locate import frame
from graphpar.capture.translate import Unsupported
from graphpar.ir.graph import Origin


def require_no_hooks(model: nn.Module) -> None:
    """Raises Unsupported if a parameter or a module has a hook on its gradient."""
    for name, p in model.named_parameters():
        for hooks in (p._backward_hooks, p._post_accumulate_grad_hooks):
            _none(f"`{name}`", hooks)
    for path, module in model.named_modules():
        for hooks in (module._backward_hooks, module._backward_pre_hooks):
            _none(f"`{path or type(module).__name__}`", hooks)


def _none(name: str, hooks: Mapping[Any, Callable[..., Any]] | None) -> None:
    for hook in (hooks or {}).values():
        code = getattr(hook, "__code__", None)
        place = (code.co_filename, code.co_firstlineno) if code else ("", 0)
        raise Unsupported("gradient-hook", name, Origin("", *place))


@contextmanager
def no_own_gradients() -> Iterator[None]:
    """Inside, a function with its own backward, or a hook on a gradient, raises Unsupported where it is used."""
    apply = torch.autograd.Function.apply.__func__

    def refusing(cls: type[torch.autograd.Function], *args: Any, **kwargs: Any) -> Any:
        if not cls.__module__.startswith("torch."):  # torch's own recompute, and compute what they say
            _refuse("own-backward", cls.__name__)
        return apply(cls, *args, **kwargs)

    def hooked(tensor: Tensor, hook: object) -> NoReturn:
        _refuse("gradient-hook", "a value")

    with ExitStack() as stack:
        stack.enter_context(patch.object(torch.autograd.Function, "apply", classmethod(refusing)))
        for name in ("register_hook", "register_post_accumulate_grad_hook"):
            stack.enter_context(patch.object(Tensor, name, hooked))
        yield


def _refuse(kind: str, name: str) -> NoReturn:
    raise Unsupported(kind, name, Origin("", *frame("".join(traceback.format_stack()))))


def require_dropout_to_end(model: nn.Module, inputs: Sequence[str], constants: Mapping[str, Any]) -> None:
    """Raises Unsupported if something is dropped in evaluation too: the program drops in training alone.

    A model that cannot be run without values in evaluation is left alone.
    """
    mode = next((p.fake_mode for p in model.parameters() if isinstance(p, FakeTensor)), None)
    if mode is None:
        return
    was_training = model.training
    try:
        with patch.object(mode, "allow_non_fake_inputs", True), mode, torch.no_grad(), _NeverDrops():
            tokens = {name: torch.zeros((2, 16), dtype=torch.int64) for name in inputs}
            model.eval()(**tokens, **constants)
    except Unsupported:
        raise
    except Exception:  # noqa: BLE001  (what fails in evaluation alone is no matter of training)
        pass
    finally:
        model.train(was_training)


class _NeverDrops(TorchDispatchMode):
    """Refuses to draw a mask."""

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func._schema.name in ("aten::native_dropout", "aten::bernoulli_", "aten::bernoulli"):
            _refuse("always-dropped", "dropout")
        return func(*args, **(kwargs or {}))
