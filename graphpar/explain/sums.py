"""Why the gradients of parameters are summed once in a step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from graphpar.explain.gradients import Sums
from graphpar.explain.laws import LAWS, WITHOUT
from graphpar.explain.quotes import Quotes, Rule
from graphpar.explain.reasons import Cause, Chain, Step, Without, alone, named

Plan = Mapping[str, Any]
Key = tuple[str, "Rule | None"]  # dimension, rule


def reason_of_sum(op: str, found: Sums, plan: Plan) -> str:
    """The reason in a few words."""
    if op == "shared":
        return f"stages on {found.place} read {_few(found.names)}"
    dims = dict.fromkeys(str(c["dim"]) for c in uses(found, plan) if c["dim"])
    return f"each rank of {' '.join(found.axes)} has its own part of {', '.join(dims)}"


def chain_of_sum(found: Sums, plan: Plan, quotes: Quotes) -> Chain:
    """A reason for each mesh axis and dimension that leave the gradients summands."""
    groups: dict[Key, list[Cause]] = {}
    for cause in uses(found, plan):
        groups.setdefault((str(cause["dim"]), quotes.rule(cause["rule"])), []).append(cause)
    steps = tuple(_step(key, causes) for key, causes in groups.items())
    then = WITHOUT["gradients", "use"]
    without = [
        Without(str(rule), then.format(reader="what reads them", dim=dim, axis=axes(causes)))
        for (dim, rule), causes in groups.items()
        if rule
    ]
    return Chain(steps, "", LAWS["gradients"].backward, (*without, *alone(" ".join(found.axes))))


def chain_of_shared(found: Sums, plan: Plan, quotes: Quotes) -> Chain:
    """Stages on several ranks that hold one parameter."""
    rule = quotes.pipeline(plan["pipeline"]["rule"])
    steps = tuple(
        Step(f"stages on {found.place} read {name}", module, where, rule)
        for name in found.names
        for module, where in _read_at(name, plan)
    )
    without = (Without(str(rule), WITHOUT["shared", "use"]), *alone(" ".join(found.axes)))
    return Chain(steps, "", LAWS["shared"].backward, without)


def uses(found: Sums, plan: Plan) -> list[Cause]:
    """What leaves the gradients to be summed, each op once."""
    families = dict.fromkeys(plan["parameters"][name]["family"] for name in found.names)
    return [
        cause
        for family in families
        for cause in plan["causes"][family]
        if cause["role"] == "use" and cause["axis"] in found.axes
    ]


def _step(key: Key, causes: list[Cause]) -> Step:
    dim, rule = key
    others = len({(c["module"], c["op"], c["where"]) for c in causes}) - 1
    more = f" and {others} other{'s' if others > 1 else ''}" if others else ""
    verb = "read parameters for their" if others else "reads a parameter for its"
    text = f"{named(causes[0])}{more} {verb} part of {dim}: each rank of {axes(causes)} has a summand of the gradient"
    return Step(text, causes[0]["module"], causes[0]["where"], rule)


def axes(causes: Iterable[Cause]) -> str:
    """The mesh axes of causes, each once."""
    return " ".join(dict.fromkeys(cause["axis"] for cause in causes))


def _read_at(name: str, plan: Plan) -> list[tuple[str, str | None]]:
    """Where the source reads a parameter under each of its names."""
    entry = plan["parameters"][name]
    modules = {n.rpartition(".")[0] for n in (name, *entry.get("aliases", ()))}
    lines = {(line["module"], line["where"]) for line in plan["lines"].values() if line["module"] in modules}
    return sorted(lines) or [(name.rpartition(".")[0], None)]


def _few(names: tuple[str, ...]) -> str:
    first, *others = names
    return f"{first} and {len(others)} more" if others else first
