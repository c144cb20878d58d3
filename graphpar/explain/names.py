"""What `graphpar names` says: the named axes of every parameter, what named them, and what has no name or rule."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from graphpar.explain.tables import Table, print_tables
from graphpar.ir.axes import Factor, spell_all
from graphpar.ir.graph import Node
from graphpar.language.schema import Spec, axes_by_name
from graphpar.names.named import Named

LARGE = 64  # an unnamed axis this long is probably one that somebody would want to cut


@dataclass(frozen=True)
class Parameter:
    """A parameter, or one per layer with `*` for the number: how many, global shape, named axes, other names."""

    name: str
    count: int
    shape: tuple[int, ...]
    axes: str
    also: tuple[str, ...]


@dataclass(frozen=True)
class Dimension:
    """A name: its size (None: chosen in training), the mesh axes that the spec gives it, and what named it."""

    name: str
    size: int | None
    mesh: str
    named_by: str


@dataclass(frozen=True)
class Unknown:
    """An op that graphpar has no rule for."""

    op: str
    count: int
    place: str


@dataclass(frozen=True)
class Names:
    """All of it. `unnamed` are parameters with a large axis that has no name."""

    model: str
    parameters: tuple[Parameter, ...]
    dimensions: tuple[Dimension, ...]
    ops: int
    unknown: tuple[Unknown, ...]
    unnamed: tuple[Parameter, ...]
    said: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The same as JSON values."""
        return {"ok": True, **asdict(self)}

    def show(self) -> None:
        """Print it."""
        rows = [(p.name, str(p.count), " ".join(map(str, p.shape)), p.axes + _also(p)) for p in self.parameters]
        columns = ("dimension", "size", *(("cut by",) if any(d.mesh for d in self.dimensions) else ()), "named by")
        by = [_row(d, len(columns)) for d in self.dimensions]
        total = sum(p.count for p in self.parameters)
        tables = [
            Table(f"{total} parameters", ("parameter", "count", "shape", "axes"), rows),
            Table(f"{len(by)} dimensions", columns, by),
        ]
        print_tables([self.model], tables, self._closing())

    def _closing(self) -> Iterable[str]:
        yield f"{self.ops - sum(u.count for u in self.unknown)} of {self.ops} ops have a rule"
        for u in self.unknown:
            yield f"  no rule: {u.op}, {u.count} time{'s' if u.count > 1 else ''}, first at {u.place}"
        for p in self.unnamed:
            yield f"  no name: {p.name} has axes `{p.axes}`; give them names in the spec:  names: {{{p.name}: ..}}"
        yield from (f"note: {text}" for text in self.said)


def names(named: Named, model: str, said: Sequence[str], spec: Spec | None = None) -> Names:
    """The report of a graph with named axes; with a spec, each dimension with the mesh axes that cut it."""
    order = list(named.graph.tensors)
    nodes = [n for n in named.graph.nodes if n.op == "parameter"]
    nodes.sort(key=lambda n: order.index(named.graph.members(n.attrs["name"])[0]))
    computed = [n for n in named.graph.nodes if n.op not in ("parameter", "buffer", "input")]
    parameters = tuple(_parameter(n, named) for n in nodes)
    unnamed = tuple(p for p, n in zip(parameters, nodes, strict=True) if any(_is_unnamed(f) for f in _factors(n)))
    return Names(
        model=model,
        parameters=parameters,
        dimensions=tuple(_dimensions(named, spec)),
        ops=len(computed),
        unknown=tuple(_unknown(named)),
        unnamed=unnamed,
        said=tuple(said),
    )


def _parameter(node: Node, named: Named) -> Parameter:
    members = named.graph.members(node.attrs["name"])
    shape = tuple(int(s) for s in node.shape)
    aliases = named.graph.tensors[members[0]].aliases if len(members) == 1 else ()
    return Parameter(node.attrs["name"], len(members), shape, spell_all(node.axes or ()), aliases)


def _also(parameter: Parameter) -> str:
    return f"   also {', '.join(parameter.also)}" if parameter.also else ""


def _row(dimension: Dimension, columns: int) -> Sequence[str]:
    size = "free" if dimension.size is None else str(dimension.size)
    cut = [dimension.mesh] if columns > 3 else []
    return [dimension.name, size, *cut, dimension.named_by]


def _factors(node: Node) -> Iterable[Factor]:
    return (factor for axis in node.axes or () for factor in axis.factors)


def _is_unnamed(factor: Factor) -> bool:
    return factor.name.startswith("?") and not factor.constant and isinstance(factor.size, int) and factor.size >= LARGE


def _dimensions(named: Named, spec: Spec | None) -> Iterable[Dimension]:
    moe = (spec.moe.rule,) if spec and spec.moe else ()
    cut = axes_by_name((*spec.layout, *moe)) if spec else {}
    for name, size in named.sizes().items():
        yield Dimension(name, size, " ".join(cut.get(name, ())), _why(name, named))


def _why(name: str, named: Named) -> str:
    if name in named.why:
        return _short(named.why[name])
    parts = named.dims[name][0]
    words = " ".join(named.factors[p].name for p in parts)
    return f"= {words}" if len(parts) > 1 else f"the same as {words}"


def _short(text: str) -> str:
    """Without the part of a path that says nothing: the working directory, or where packages are installed."""
    op, at, place = text.partition(" at ")
    place = place.removeprefix(f"{Path.cwd()}/")
    return f"{op}{at}{place.rpartition('site-packages/')[2]}"


def _unknown(named: Named) -> Iterable[Unknown]:
    found: dict[str, list[Node]] = {}
    for node in dict.fromkeys(named.unknown):
        found.setdefault(node.op, []).append(node)
    for op, nodes in found.items():
        yield Unknown(op, len(nodes), _short(f"{op} at {nodes[0].origin}").partition(" at ")[2])
