"""Two builds beside each other: what one has and the other has not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from graphpar.explain.explained import sized
from graphpar.explain.memory import memory, spell
from graphpar.explain.tables import Table, print_tables
from graphpar.explain.traffic import Tokens, Traffic, traffic

Plan = Mapping[str, Any]


@dataclass(frozen=True)
class Change:
    """One thing that differs: of what part of a build, what it is called, and how both have it; empty: not at all."""

    part: str
    what: str
    here: str
    there: str


@dataclass(frozen=True)
class Difference:
    """All that differs between two builds, for one size of a step's batch."""

    size: Tokens
    changes: tuple[Change, ...]

    def to_json(self) -> dict[str, Any]:
        """The same as JSON values."""
        return asdict(self)

    def show(self, here: str, there: str) -> None:
        """Print it: a table for each part of a build in which something differs."""
        parts = dict.fromkeys(change.part for change in self.changes)
        tables = [
            Table(part, ("what", here, there), [(c.what, c.here, c.there) for c in self.changes if c.part == part])
            for part in parts
        ]
        sizes = f"sizes: batch {self.size.batch}, seq {self.size.seq}, {self.size.why}"
        print_tables([] if tables else ["no difference"], tables, [sizes] if tables else [])


def difference(here: Plan, there: Plan, given: Mapping[str, int]) -> Difference:
    """What differs: model, mesh, layout, parameters, collectives, memory. Sizes are those of the first build."""
    size = sized(here, given)
    parts = (
        ("the model", _model(here), _model(there)),
        ("the mesh", _mesh(here), _mesh(there)),
        ("the spec", _rules(here), _rules(there)),
        ("what a rank has of a parameter", _parameters(here), _parameters(there)),
        ("collectives of a step", _collectives(here, size), _collectives(there, size)),
        ("memory of a rank, activations apart", _memory(here), _memory(there)),
    )
    return Difference(size, tuple(change for part in parts for change in _changes(*part)))


def _changes(part: str, here: Mapping[str, str], there: Mapping[str, str]) -> Iterator[Change]:
    for what in dict.fromkeys((*here, *there)):
        ours, theirs = here.get(what, ""), there.get(what, "")
        if ours != theirs:
            yield Change(part, what, ours, theirs)


def _model(plan: Plan) -> dict[str, str]:
    source = plan["source"]
    dims = {f"size of {name}": str(size) for name, size in plan["dims"].items() if size is not None}
    return {"source": source["model"], "text": str(source.get("hash", "")), "class": plan["class"], **dims}


def _mesh(plan: Plan) -> dict[str, str]:
    return {f"ranks along {axis}": str(ranks) for axis, ranks in plan["mesh"].items()}


def _rules(plan: Plan) -> dict[str, str]:
    """Each rule with its places in the order, which is priority; the stages; and the rest of the spec by its hash."""
    places: dict[str, list[str]] = {}
    for at, rule in enumerate(plan["rules"], 1):
        places.setdefault(rule["text"], []).append(str(at))
    found = {
        "all of the spec": plan["source"]["spec"],
        **{text: f"rule {', '.join(at)}" for text, at in places.items()},
    }
    pipeline = plan.get("pipeline")
    if pipeline:
        found |= {
            "stages": str(len(pipeline["stages"])),
            "schedule": pipeline["schedule"],
            "microbatches": str(pipeline["microbatches"]),
        }
    return found


def _parameters(plan: Plan) -> dict[str, str]:
    """Each family of parameters and buffers: its local shape and axes, and what its gradient is summed over."""
    found: dict[str, str] = {}
    for kind in ("parameters", "buffers"):
        for entry in plan[kind].values():
            summed = f"   gradient summed over {' '.join(entry['grad_sum'])}" if entry.get("grad_sum") else ""
            stages = f"   stages {' '.join(map(str, entry['stages']))}" if "stages" in entry else ""
            text = f"{' x '.join(map(str, entry['local_shape'])) or 'scalar'}   {entry['axes']}{summed}{stages}"
            found.setdefault(entry["family"], text)
    return found


def _collectives(plan: Plan, size: Tokens) -> dict[str, str]:
    return {f"{t.phase} {t.kind} {t.axis}": _amount(t) for t in traffic(plan, size)}


def _amount(found: Traffic) -> str:
    return f"{found.count}, {spell(found.bytes)}"


def _memory(plan: Plan) -> dict[str, str]:
    held = memory(plan)
    sizes: Iterable[tuple[str, int]] = (
        ("parameters", held.parameters),
        ("gradients", held.gradients),
        ("AdamW moments", held.moments),
        ("buffers", held.buffers),
        ("sum", held.total),
    )
    return {what: spell(size) for what, size in sizes}
