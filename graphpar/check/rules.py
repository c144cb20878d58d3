"""What is known of operations, by the name under which a program calls them.

`F.linear`, `torch.cat` and the functions of the runtime go by their names, methods by theirs with a dot before it. A
rule gets the operands as they are written, `Value`s for tensors, and returns the result. It raises Wrong where ranks
together would not do what one device does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice, product
from typing import Any

from graphpar.check.dims import Wrong
from graphpar.check.value import READINGS, Value, readings

Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule under names."""

    def register(function: Rule) -> Rule:
        for name in names:
            assert name not in RULES, name
            RULES[name] = function
        return function

    return register


@dataclass(frozen=True)
class Collective:
    """A collective of the program: what runs forward and backward, if anything, over which axis, and where."""

    forward: str | None
    backward: str | None
    axis: str
    line: int


@dataclass
class Trace:
    """Collectives in the order in which the program runs them."""

    line: int = 0
    found: list[Collective] = field(default_factory=list[Collective])


@dataclass(frozen=True)
class Axis:
    """A mesh axis or a product of axes, outermost first, as the program holds it; those of size 1 are left out."""

    names: tuple[str, ...]
    size: int
    trace: Trace

    def ran(self, forward: str | None, backward: str | None, *, grad: bool = True) -> None:
        """Note a collective; without a gradient nothing runs backward."""
        self.trace.found.append(Collective(forward, backward if grad else None, " ".join(self.names), self.trace.line))


@dataclass(frozen=True)
class Stream:
    """Random numbers that are equal on ranks which differ only along other axes than these."""

    axes: frozenset[str]


def applied(function: Rule, trace: Trace, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What a rule says of its operands, in a reading of them for which it says something. Raises Wrong without one."""
    before = len(trace.found)
    try:
        return function(*args, **kwargs)
    except Wrong:
        for other in islice(product(*map(_read, args)), READINGS):
            del trace.found[before:]
            with suppress(Wrong):
                return function(*other, **kwargs)
        raise


def _read(arg: Any) -> list[Any]:
    if isinstance(arg, tuple):
        return [tuple(items) for items in product(*map(_read, arg))]
    return [arg, *readings(arg)] if isinstance(arg, Value) else [arg]


def tensor(value: object) -> Value:
    """An operand as a tensor: a number is the same on every rank."""
    return value if isinstance(value, Value) else Value(())


def number(value: object, what: str) -> int:
    """An operand that must be a whole number."""
    if isinstance(value, int):
        return value
    raise Wrong(f"{what} is not a number that the text gives")
