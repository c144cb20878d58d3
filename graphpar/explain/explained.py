"""Everything that can be asked of a build: its collectives and parameters, with their reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphpar.explain.collectives import Collective, collectives
from graphpar.explain.parameters import Parameter, parameters
from graphpar.explain.quotes import Quotes
from graphpar.explain.traffic import Tokens, tokens

Plan = Mapping[str, Any]


@dataclass(frozen=True)
class Explained:
    """A build in reasons, for one size of a step's batch."""

    plan: Plan
    size: Tokens
    collectives: tuple[Collective, ...]
    parameters: tuple[Parameter, ...]
    quotes: Quotes


def explained(plan: Plan, spec: str, given: Mapping[str, int]) -> Explained:
    """The reasons in a plan; `spec` is the text of the build's spec.yaml, empty if it has none."""
    quotes, size = Quotes(plan, spec), sized(plan, given)
    every = collectives(plan, size, quotes)
    return Explained(plan, size, every, parameters(plan, every, quotes), quotes)


def sized(plan: Plan, given: Mapping[str, int]) -> Tokens:
    """The sizes of a step: those that are given, the others as train.py takes them by itself."""
    usual = tokens(plan, {})
    if not given:
        return usual
    why = "as given" if len(given) > 1 else f"{next(iter(given))} as given"
    return Tokens(given.get("batch", usual.batch), given.get("seq", usual.seq), why)


def spec_of(build: Path) -> str:
    """The text of a build's spec.yaml, empty where it cannot be read."""
    try:
        return (build / "spec.yaml").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
