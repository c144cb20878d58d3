"""Replaying the source model's constructor, with memory only for the values that are still needed.

Running the tape after `torch.manual_seed(seed)` draws, number for number, the values that the source model has on one
device. A constructor often fills every weight twice (the layer's default, then the model's own rule); the first filling
is drawn, since it moves the generator, but its memory goes back at once. So about one whole tensor is alive at a time.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphpar.runtime.plan import PlanError
from graphpar.runtime.tape import Op, Tape, Tensors

# These write every element of their first argument and read none of it.
_OVERWRITES = frozenset(
    {"normal_", "uniform_", "random_", "bernoulli_", "exponential_", "trunc_normal_", "fill_", "zero_", "copy_"}
)
# These return memory that has no values yet.
_UNWRITTEN = frozenset({"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided"})
_TRIM = 64 << 20  # bytes


def replay(tape: Tape, seed: int, names: Sequence[str], receive: Callable[[str, Tensor], None]) -> None:
    """Run the tape on the CPU and hand over each named tensor, whole and final, as soon as it is.

    The tensor is valid during the call of `receive` only. Raises PlanError for a name whose values the constructor
    never writes.
    """
    shared = _trace(tape.ops)
    wanted = {name: tape.state[name] for name in names}
    ops = _behind(wanted.values(), tape.ops, shared)
    touches = _touches(ops, shared)
    final = _final(ops, touches, wanted, shared)
    idle = _idle(touches, [{shared.storage[wanted[name]] for name in ready} for ready in final])
    memory = _Memory()
    tensors: Tensors = {}
    torch.manual_seed(seed)
    for index, op in enumerate(ops):
        memory.restore(touch.storage for touch in touches[index])
        op.run(tensors, "cpu")
        for name in final[index]:
            receive(name, tensors[wanted[name]])
        for touch in idle[index]:
            memory.release(touch.storage, tensors[touch.id])


@dataclass(frozen=True)
class _Shared:
    """Which tensors of a tape share memory, and which span all of theirs."""

    storage: dict[int, int]  # tensor id -> number of its storage
    spans: dict[int, bool]


@dataclass(frozen=True)
class _Touch:
    """One operation meets one storage, through tensor `id`: does it need the values, does it change them?"""

    storage: int
    id: int
    reads: bool
    writes: bool


class _Memory:
    """Storages emptied between uses. Views stay views, because the storage object stays."""

    def __init__(self) -> None:
        self._empty: dict[int, tuple[torch.UntypedStorage, int]] = {}
        self._freed = 0  # bytes that the allocator may still hold

    def release(self, storage: int, tensor: Tensor) -> None:
        held = tensor.untyped_storage()
        if held.resizable():
            self._empty[storage] = held, held.nbytes()
            held.resize_(0)
            self._freed += self._empty[storage][1]
        if self._freed > _TRIM:
            _give_back()
            self._freed = 0

    def restore(self, storages: Iterable[int]) -> None:
        for storage in storages:
            if storage in self._empty:
                held, size = self._empty.pop(storage)
                held.resize_(size)


def _give_back() -> None:
    """Return freed memory to the system: small allocations between large ones make glibc keep the large ones."""
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def _trace(ops: Sequence[Op]) -> _Shared:
    """Run the tape without data."""
    tensors: Tensors = {}
    for op in ops:
        op.run(tensors, "meta")
    numbers: dict[int, int] = {}
    storage: dict[int, int] = {}
    spans: dict[int, bool] = {}
    for id_, tensor in tensors.items():
        held = tensor.untyped_storage()
        # the storage object's address: unique while `tensors` keeps them all alive
        storage[id_] = numbers.setdefault(held._cdata, len(numbers))  # pyright: ignore[reportPrivateUsage]
        spans[id_] = tensor.numel() * tensor.element_size() == held.nbytes()
    return _Shared(storage, spans)


def _behind(wanted: Iterable[int], ops: tuple[Op, ...], shared: _Shared) -> tuple[Op, ...]:
    """The operations that the wanted tensors come from; all of them once one is random, since each draw counts."""
    storages = {shared.storage[id_] for id_ in wanted}
    needed: list[Op] = []
    for op in reversed(ops):
        if any(shared.storage[id_] in storages for id_ in op.out):
            storages.update(shared.storage[id_] for id_ in op.arguments)
            needed.append(op)
    if any(op.is_random for op in needed):
        return ops
    return tuple(reversed(needed))


def _touches(ops: Sequence[Op], shared: _Shared) -> list[list[_Touch]]:
    touches: list[list[_Touch]] = []
    known: set[int] = set()
    for op in ops:
        met = {shared.storage[id_]: id_ for id_ in (*op.out, *op.arguments)}
        touches.append([_touch(op, storage, id_, storage in known, shared) for storage, id_ in met.items()])
        known.update(met)
    return touches


def _touch(op: Op, storage: int, id_: int, known: bool, shared: _Shared) -> _Touch:
    through = [argument for argument in op.arguments if shared.storage[argument] == storage]
    if not known:
        return _Touch(storage, id_, reads=False, writes=op.base_name not in _UNWRITTEN)
    if op.is_in_place and shared.storage[op.arguments[0]] == storage:
        overwrites = op.base_name in _OVERWRITES and through == [op.arguments[0]] and shared.spans[through[0]]
        return _Touch(storage, id_, reads=not overwrites, writes=True)
    makes_view = any(shared.storage[out] == storage for out in op.out)
    return _Touch(storage, id_, reads=not makes_view, writes=False)


def _idle(touches: Sequence[Sequence[_Touch]], handed_over: Sequence[set[int]]) -> list[list[_Touch]]:
    """Per operation, the touched storages whose values nobody needs any more, or not before they are written anew."""
    idle: list[list[_Touch]] = []
    needed: set[int] = set()
    for touched, handed in zip(reversed(touches), reversed(handed_over), strict=True):
        idle.append([touch for touch in touched if touch.storage not in needed])
        needed |= handed
        for touch in touched:
            if touch.reads:
                needed.add(touch.storage)
            elif touch.writes:
                needed.discard(touch.storage)
    return idle[::-1]


def _final(
    ops: Sequence[Op], touches: Sequence[Sequence[_Touch]], wanted: dict[str, int], shared: _Shared
) -> list[list[str]]:
    """Per operation, the names that are final after it: written for the last time, and a tensor by their id exists."""
    written = {touch.storage: index for index, touched in enumerate(touches) for touch in touched if touch.writes}
    made = {id_: index for index, op in reversed(list(enumerate(ops))) for id_ in op.out}
    final: list[list[str]] = [[] for _ in ops]
    for name, id_ in wanted.items():
        storage = shared.storage[id_]
        if storage not in written:
            raise PlanError(f"the source model never gives {name} a value")
        final[max(written[storage], made[id_])].append(name)
    return final
