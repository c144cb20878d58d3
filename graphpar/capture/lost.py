"""What an export would lose without a word: gradients of the model's own making, and dropout that never ends.

An exported graph has forward operations, and their backward is derived from them. Whatever a model does to its
gradients by other means is not in it, so it is refused where it stands.
"""

# Hooks are read where torch keeps them.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NoReturn
from unittest.mock import MagicMock, patch

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
    """Inside, a function with another backward, or a hook on a gradient, raises Unsupported where it is used."""
    apply = torch.autograd.Function.apply.__func__
    known: dict[type[torch.autograd.Function], bool] = {}

    def refusing(cls: type[torch.autograd.Function], *args: Any, **kwargs: Any) -> Any:
        if not cls.__module__.startswith("torch."):  # torch's own recompute, and compute what they say
            if cls not in known:
                known[cls] = not kwargs and is_derivative(cls, partial(apply, cls), args)
            if not known[cls]:
                _refuse("own-backward", cls.__name__)
        return apply(cls, *args, **kwargs)

    def hooked(tensor: Tensor, hook: object) -> NoReturn:
        _refuse("gradient-hook", "a value")

    with ExitStack() as stack:
        stack.enter_context(patch.object(torch.autograd.Function, "apply", classmethod(refusing)))
        for name in ("register_hook", "register_post_accumulate_grad_hook"):
            stack.enter_context(patch.object(Tensor, name, hooked))
        yield


def is_derivative(cls: type[torch.autograd.Function], apply: Callable[..., Any], args: Sequence[Any]) -> bool:
    """Whether the backward of a function is the derivative of its forward, on random numbers of the operands' shapes.

    Then a graph has all of it: its author spared memory, and changed no gradient.
    """
    shapes = [_shape(x) if isinstance(x, Tensor) and x.is_floating_point() else None for x in args]

    def compared() -> bool:
        random = torch.Generator().manual_seed(0)
        given = [x if s is None else _drawn(s, random) for x, s in zip(args, shapes, strict=True)]
        operands = [x for x, s in zip(given, shapes, strict=True) if s is not None]
        own, plain = apply(*given), cls.forward(MagicMock(), *given)
        weight = _drawn(own.shape, random).detach()
        both = [torch.autograd.grad((result * weight).sum(), operands) for result in (own, plain)]
        return all(torch.allclose(a, b, rtol=1e-6, atol=1e-6) for a, b in zip(*both, strict=True))

    try:  # in a thread of its own: there nothing is traced
        with ThreadPoolExecutor(1) as outside:
            return outside.submit(compared).result()
    except Exception:  # noqa: BLE001  (what cannot be compared is not known to be equal)
        return False


def _shape(x: Tensor) -> list[int]:
    sizes: Sequence[Any] = x.shape
    return [int(s.node.hint) if isinstance(s, torch.SymInt) else s for s in sizes]


def _drawn(shape: Sequence[int], random: torch.Generator) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=random).requires_grad_()


def _refuse(kind: str, name: str) -> NoReturn:
    raise Unsupported(kind, name, Origin("", *frame("".join(traceback.format_stack()))))


def require_dropout_to_end(model: nn.Module, shapes: Mapping[str, Sequence[int]], constants: Mapping[str, Any]) -> None:
    """Raises Unsupported if something is dropped in evaluation too: the program drops in training alone.

    `shapes` are those of its inputs. A model that cannot be run without values in evaluation is left alone.
    """
    mode = next((p.fake_mode for p in model.parameters() if isinstance(p, FakeTensor)), None)
    if mode is None:
        return
    was_training = model.training
    try:
        with patch.object(mode, "allow_non_fake_inputs", True), mode, torch.no_grad(), _NeverDrops():
            inputs = {name: torch.zeros(tuple(shape), dtype=torch.int64) for name, shape in shapes.items()}
            model.eval()(**inputs, **constants)
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
