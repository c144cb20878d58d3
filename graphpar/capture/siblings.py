"""Repeated blocks are traced once.

The members of a module list are grouped by what they are made of: classes, parameter shapes, submodules. One member of
each group is traced while every attribute that its modules read is recorded; the others then have the same program if
the same code reads equal values. Where a value differs, the group is split by it and the trace is repeated, so the
fold is proven, not assumed. A block whose outputs do not have the shapes of its inputs is traced like any other code.
"""

# What a module holds is read where nn.Module keeps it.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn

from graphpar.capture import markers

_HELD = ("_parameters", "_buffers", "_modules")
_OWN = frozenset(nn.Module().__dict__) | {"forward", "training"}


@dataclass(frozen=True)
class Site:
    """One member of a module list: its list's path, its index, and the site whose trace it shares."""

    path: str
    index: int
    leader: int


@dataclass
class Siblings:
    """The members of every module list, each with the member that is traced for it."""

    sites: list[Site] = field(default_factory=list[Site])
    reads: dict[int, set[tuple[str, str]]] = field(default_factory=dict[int, set[tuple[str, str]]])
    outputs: dict[int, Any] = field(default_factory=dict[int, Any])
    arguments: dict[int, Any] = field(default_factory=dict[int, Any])
    open: set[int] = field(default_factory=set[int])
    called: set[int] = field(default_factory=set[int])

    def call(self, site: int) -> None:
        """Note that a member runs; raises CalledTwice if it has run before."""
        if site in self.called:
            raise CalledTwice(self.sites[site].path)
        self.called.add(site)


def group(model: nn.Module, apart: Collection[str] = ()) -> Siblings:
    """Group the members of each outermost list of modules in which some module repeats, but for those in `apart`."""
    found = Siblings()
    uses = _uses(model)
    inside: list[str] = []
    for path, modules in model.named_modules():
        if not isinstance(modules, (nn.ModuleList, nn.Sequential)) or any(path.startswith(p) for p in inside):
            continue
        structures = [_structure(member, uses) for member in modules]
        if len(set(structures)) == len(structures) or path in apart or _share(modules) or not _blocks(modules):
            continue
        inside.append(f"{path}.")
        leaders: dict[object, int] = {}
        for index, structure in enumerate(structures):
            site = len(found.sites)
            found.sites.append(Site(path, index, leaders.setdefault(structure, site)))
    return found


def split(model: nn.Module, siblings: Siblings) -> Siblings | None:
    """Split groups whose members differ in something that the traced member read; None if none does."""
    leaders: dict[object, int] = {}
    sites: list[Site] = []
    for number, site in enumerate(siblings.sites):
        reads = siblings.reads.get(site.leader, set())
        alone = number if site.leader in siblings.open else None
        key = (site.path, site.leader, alone, _values(_member(model, site), reads))
        sites.append(Site(site.path, site.index, leaders.setdefault(key, number)))
    return None if sites == siblings.sites else Siblings(sites, open=siblings.open)


@contextmanager
def folded(model: nn.Module, siblings: Siblings, *, hollow: bool) -> Iterator[None]:
    """While active, leaders are framed by markers and every other member is one marker.

    `hollow`: the others hold no tensors and no submodules meanwhile, so that what is not traced costs nothing.
    """
    siblings.called.clear()
    with ExitStack() as stack:
        watched: dict[int, tuple[int, str]] = {}
        for number, site in enumerate(siblings.sites):
            member = _member(model, site)
            if site.leader != number:
                forward = _stub(siblings, number, site.leader)
                if hollow:
                    stack.callback(member.__dict__.update, {k: member.__dict__[k] for k in _HELD})
                    member.__dict__.update({k: {} for k in _HELD})
            elif number in siblings.open:
                continue
            else:
                forward = _frame(siblings, number, member.forward)
                watched |= {id(m.__dict__): (number, name) for name, m in member.named_modules()}
            member.__dict__["forward"] = forward
            stack.callback(member.__dict__.pop, "forward")
        stack.enter_context(_recording(model, watched, siblings.reads))
        yield


def _blocks(modules: Iterable[nn.Module]) -> bool:
    """Whether some member is made of modules. A row of single layers is no loop: what goes in and what comes out of
    each would have to be the same dimension, which equal sizes do not say."""
    return any(next(member.children(), None) is not None for member in modules)


def _share(modules: Iterable[nn.Module]) -> bool:
    """Whether two members have a parameter in common: they are then no copies of one block."""
    owned = [{id(p) for p in member.parameters()} for member in modules]
    return sum(map(len, owned)) > len(set().union(*owned))


def _member(model: nn.Module, site: Site) -> nn.Module:
    return model.get_submodule(f"{site.path}.{site.index}")


def _uses(model: nn.Module) -> dict[int, int]:
    """How many names each parameter has."""
    uses: dict[int, int] = {}
    for _, p in model.named_parameters(remove_duplicate=False):
        uses[id(p)] = uses.get(id(p), 0) + 1
    return uses


def _structure(module: nn.Module, uses: Mapping[int, int]) -> object:
    parameters = tuple(
        (name, tuple(p.shape), p.dtype, p.requires_grad, id(p) if uses.get(id(p), 0) > 1 else None)
        for name, p in module._parameters.items()
        if p is not None
    )
    buffers = tuple((name, tuple(b.shape), b.dtype) for name, b in module._buffers.items() if b is not None)
    children = tuple((name, _structure(child, uses)) for name, child in module._modules.items() if child is not None)
    return type(module), module.training, parameters, buffers, children


def _values(member: nn.Module, reads: set[tuple[str, str]]) -> object:
    return tuple((path, name, _value(member, path, name)) for path, name in sorted(reads))


def _value(member: nn.Module, path: str, name: str) -> object:
    value = getattr(member.get_submodule(path), name, None)
    if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
        return tuple(value.shape), value.dtype, bytes(_digest(value))
    if isinstance(value, (nn.Module, nn.Parameter)):
        return type(value)
    if isinstance(value, partial):
        return value.func, value.args, tuple(sorted(value.keywords.items()))
    if callable(value):
        return getattr(value, "__func__", value)
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return type(value), value


def _digest(value: Tensor) -> bytes:
    if value.device.type == "meta" or type(value) is not Tensor:
        return b"unknown"
    return value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b""


def _frame(siblings: Siblings, number: int, forward: Callable[..., Any]) -> Callable[..., Any]:
    def framed(*args: Any, **kwargs: Any) -> Any:
        siblings.call(number)
        leaves, tree = pytree.tree_flatten((args, kwargs))
        at = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        values = markers.enter([leaves[i] for i in at], number)
        siblings.arguments[number] = (tree, _constants(leaves))
        for i, value in zip(at, values, strict=True):
            leaves[i] = value
        args, kwargs = pytree.tree_unflatten(leaves, tree)
        out, tree = pytree.tree_flatten(forward(*args, **kwargs))
        at = [i for i, leaf in enumerate(out) if isinstance(leaf, Tensor)]
        like = [_same_kind(out[i], values) for i in at]
        siblings.outputs[number] = (tree, at, _constants(out), like)
        for i, value in zip(at, markers.leave([out[i] for i in at], number), strict=True):
            out[i] = value
        return pytree.tree_unflatten(out, tree)

    return framed


def _stub(siblings: Siblings, number: int, leader: int) -> Callable[..., Any]:
    def stub(*args: Any, **kwargs: Any) -> Any:
        siblings.call(number)
        leaves, tree = pytree.tree_flatten((args, kwargs))
        if leader not in siblings.outputs or siblings.arguments[leader] != (tree, _constants(leaves)):
            raise NotTheSameCall(number)
        tree, at, out, like = siblings.outputs[leader]
        if None in like:
            raise NotTheSameCall(leader)
        out = list(out)
        values = markers.block([leaf for leaf in leaves if isinstance(leaf, Tensor)], number, like)
        for i, value in zip(at, values, strict=True):
            out[i] = value
        return pytree.tree_unflatten(out, tree)

    return stub


class CalledTwice(Exception):
    """A member of the list at `path` runs more than once: the list is no plain sequence."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class NotTheSameCall(Exception):
    """A member is called with other constants than the member traced for it: it must be traced on its own."""

    def __init__(self, site: int) -> None:
        super().__init__(site)
        self.site = site


def _constants(leaves: list[Any]) -> tuple[Any, ...]:
    return tuple(None if isinstance(leaf, Tensor) else leaf for leaf in leaves)


def _same_kind(value: Tensor, candidates: list[Tensor]) -> int | None:
    for i, candidate in enumerate(candidates):
        if candidate.shape == value.shape and candidate.dtype == value.dtype:
            return i
    return None


@contextmanager
def _recording(
    model: nn.Module, watched: Mapping[int, tuple[int, str]], reads: dict[int, set[tuple[str, str]]]
) -> Iterator[None]:
    classes = {type(m) for m in model.modules() if id(m.__dict__) in watched}
    originals = {cls: cls.__dict__.get("__getattribute__") for cls in classes}

    def recorder(cls: type) -> Callable[[Any, str], Any]:
        plain: Any = cls.__getattribute__

        def read(self: Any, name: str) -> Any:
            if not name.startswith("__") and name not in _OWN:
                site = watched.get(id(object.__getattribute__(self, "__dict__")))
                if site is not None:
                    reads.setdefault(site[0], set()).add((site[1], name))
            return plain(self, name)

        return read

    replaced = {cls: recorder(cls) for cls in classes}
    for cls, read in replaced.items():
        cls.__getattribute__ = read
    try:
        yield
    finally:
        for cls, original in originals.items():
            if original is None:
                del cls.__getattribute__
            else:
                cls.__getattribute__ = original
