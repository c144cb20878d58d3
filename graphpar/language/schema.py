"""A spec as values. Everything here is immutable and says nothing about any model.

Spans and source text take no part in equality: two specs are equal if they mean the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from graphpar.errors import Span
from graphpar.language.selectors import Selector
from graphpar.notation import Segment, Tensor

Rest = Literal["rest"]
Rng = Literal["statistical", "exact"]
Padding = Literal["error", "pad"]
Whole = Literal["whole", "sharded"]
Tied = Literal["allreduce", "same_stage"]
Recompute = Literal["selective"] | bool
Dispatch = Literal["alltoall", "allgather"]
Tokens = Literal["dropless", "capacity"]

TOKEN_DIMENSIONS = ("batch", "seq")  # what a data axis may cut
EXPERTS = "experts"

NOWHERE = Span("", 0, 0)


@dataclass(frozen=True)
class MeshAxis:
    """One axis of the mesh. `rest` stands for the ranks that the other axes leave over."""

    name: str
    size: int | Rest
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class MeshSpec:
    """The axes, outermost first, and second names for one of them or for several together."""

    axes: tuple[MeshAxis, ...]
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    span: Span = field(default=NOWHERE, compare=False)

    @property
    def names(self) -> tuple[str, ...]:
        """Every word that a rule may use for an axis."""
        return (*(axis.name for axis in self.axes), *self.aliases)

    def expand(self, name: str) -> tuple[str, ...]:
        """The axes proper behind an axis or an alias, outermost first."""
        return self.aliases.get(name, (name,))

    def sizes(self) -> dict[str, int]:
        """Axis sizes by name, without an axis that is still `rest`."""
        return {axis.name: axis.size for axis in self.axes if axis.size != "rest"}

    def __str__(self) -> str:
        return " ".join(f"{axis.name}={axis.size}" for axis in self.axes)


@dataclass(frozen=True)
class LayoutRule:
    """`- name: axes`. The first rule whose dimension occurs in an op claims the axis; no axes: it stays whole.

    `axes` are axes of the mesh proper, outermost first, aliases resolved; `written` are the words of the spec.
    """

    name: str
    axes: tuple[str, ...]
    span: Span = field(default=NOWHERE, compare=False)
    axes_span: Span = field(default=NOWHERE, compare=False)
    written: tuple[str, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        words = self.written or self.axes
        return f"{self.name}: {words[0] if len(words) == 1 else '[' + ', '.join(words) + ']' if words else 'none'}"


@dataclass(frozen=True)
class Region:
    """Rules that go before the global ones (`only`: instead of them) for the ops that any of the selectors takes in.

    `recompute` says whether their values are computed again in the backward pass, `selective` those of attention only.
    """

    at: tuple[Selector, ...]
    layout: tuple[LayoutRule, ...] = ()
    only: bool = False
    recompute: Recompute | None = None
    why: str | None = None
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class InputSpec:
    """An argument of the model: dtype, and its dimensions with the sizes it is captured with."""

    name: str
    dtype: str
    axes: tuple[tuple[str, int], ...]
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class ModelSpec:
    """What to build, with which arguments, and which output is the loss."""

    object: str | None = None
    args: Mapping[str, object] = field(default_factory=dict)
    inputs: tuple[InputSpec, ...] = ()
    loss: str | None = None
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class DimSpec:
    """What is declared about a dimension. Declarations are checked against the model and never believed."""

    name: str
    size: int | None = None
    equals: Segment | None = None  # `is:` it is the product of these
    multiple_of: int | None = None
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class NameRule:
    """The axes of a parameter, where inference needs help."""

    at: Selector
    axes: Tensor
    span: Span = field(default=NOWHERE, compare=False)
    axes_span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class Uneven:
    """What happens where a dimension does not divide: an error, or padding that changes no result."""

    default: Padding = "error"
    by_name: Mapping[str, Padding] = field(default_factory=dict)
    spans: Mapping[str, Span] = field(default_factory=dict, compare=False)

    def of(self, name: str) -> Padding:
        """The treatment of one dimension."""
        return self.by_name.get(name, self.default)


@dataclass(frozen=True)
class Numerics:
    """`grad_reduce_dtype` None: the dtype of the gradient. `rng` exact: masks as on one device, element by element."""

    grad_reduce_dtype: str | None = None
    rng: Rng = "statistical"
    deterministic: bool = False


@dataclass(frozen=True)
class Budget:
    """The most that collectives may take in one step on one rank: `what` is their phase, kind and axes."""

    what: str
    count: int | None = None
    bytes: int | None = None
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class Expect:
    """The most that a plan may take: collectives (those not listed: none), bytes per rank, lines of model.py."""

    collectives: tuple[Budget, ...] | None = None
    memory: int | None = None
    lines: int | None = None
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class OpRule:
    """The axis rule of an op that graphpar does not know."""

    name: str
    rule: str
    span: Span = field(default=NOWHERE, compare=False)
    rule_span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class Pipeline:
    """Stages along a mesh axis. `stages` are the parts of the model in their order, or None: balanced by their cost.

    `virtual` is the number of stages on each rank, `schedule` a name or the path of a file in torch's form, and
    `spans` the place of each word.
    """

    axis: str
    layers: Selector
    stages: tuple[tuple[Selector, ...], ...] | None
    virtual: int
    schedule: str
    microbatches: int
    tied: Tied = "allreduce"
    span: Span = field(default=NOWHERE, compare=False)
    spans: Mapping[str, Span] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class Moe:
    """Experts along one axis of the mesh, and how tokens come to them.

    `experts` is an axis of the mesh proper and `written` the word of the spec. Tokens of one `group` compete for the
    room that experts have; without one, all do. `span` is the word `experts`, `spans` are the places of what each says.
    """

    experts: str
    dispatch: Dispatch = "alltoall"
    tokens: Tokens = "dropless"
    capacity_factor: float | None = None
    group: str | None = None
    written: str = field(default="", compare=False)
    span: Span = field(default=NOWHERE, compare=False)
    spans: Mapping[str, Span] = field(default_factory=dict, compare=False)

    @property
    def rule(self) -> LayoutRule:
        """The layout rule that this is for the operations of the experts: they have it before any other."""
        return LayoutRule(EXPERTS, (self.experts,), self.span, self.span_of(EXPERTS), (self.written or self.experts,))

    def span_of(self, key: str) -> Span:
        """Where the value of a key stands; the word `experts`, if the key is not written."""
        return self.spans.get(key, self.span)


@dataclass(frozen=True)
class Spec:
    """A whole spec. `layout` and `regions` are in file order, and order is priority."""

    mesh: MeshSpec
    layout: tuple[LayoutRule, ...]
    version: int = 1
    model: ModelSpec | None = None
    dims: Mapping[str, DimSpec] = field(default_factory=dict)
    names: tuple[NameRule, ...] = ()
    regions: tuple[Region, ...] = ()
    uneven: Uneven = Uneven()
    strict: bool = True
    expect: Expect | None = None
    pipeline: Pipeline | None = None
    moe: Moe | None = None
    numerics: Numerics = Numerics()
    ops: Mapping[str, OpRule] = field(default_factory=dict)
    outputs: Mapping[str, Whole] = field(default_factory=dict)
    path: str = field(default="", compare=False)
    text: str = field(default="", compare=False)

    @property
    def listed(self) -> tuple[LayoutRule, ...]:
        """The rules that stand in a list: those of `layout` and of the regions."""
        return (*self.layout, *(rule for region in self.regions for rule in region.layout))

    @property
    def rules(self) -> tuple[LayoutRule, ...]:
        """Every layout rule: those that stand in a list, and the one that `moe` is."""
        return (*self.listed, *((self.moe.rule,) if self.moe else ()))

    @property
    def data_axes(self) -> tuple[str, ...]:
        """The mesh axes that cut `batch` in the global layout, outermost first."""
        return tuple(dict.fromkeys(a for rule in self.layout if rule.name == "batch" for a in rule.axes))


def base_name(name: str) -> str:
    """A dimension without its number and its prime: `seq'` and `d_ff.0` are uses of seq and d_ff."""
    return name.removesuffix("'").split(".")[0]


def axes_by_name(layout: tuple[LayoutRule, ...]) -> dict[str, tuple[str, ...]]:
    """All mesh axes of each dimension, outermost first: rules for one dimension add up in order, `none` ends them."""
    found: dict[str, tuple[str, ...]] = {}
    ended: set[str] = set()
    for rule in layout:
        if rule.name not in ended:
            found[rule.name] = (*found.get(rule.name, ()), *rule.axes)
        if not rule.axes:
            ended.add(rule.name)
    return found
