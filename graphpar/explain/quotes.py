"""Rules as they stand in the spec of a build."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from graphpar.errors import GraphparError
from graphpar.language.parse import parse_spec
from graphpar.language.schema import Spec

Plan = Mapping[str, Any]


@dataclass(frozen=True)
class Rule:
    """A rule of the spec: its words, its line in the file that was compiled, and where the build has it.

    `region` is what selects the modules that it holds in; empty for a rule of the whole model.
    """

    text: str
    file: str
    line: int
    build_line: int
    quoted: str
    region: str = ""

    def __str__(self) -> str:
        return f"`{self.text}` ({self.place})"

    @property
    def place(self) -> str:
        """Where a person finds it: in the spec of the build, else in the file that was compiled."""
        return f"spec.yaml:{self.build_line}" if self.build_line else f"{self.file}:{self.line}"


class Quotes:
    """The rules of a plan in the text of its spec.yaml, which has them in the same order.

    A text that is not that of the plan is not quoted: rules then stand where the compiled file has them.
    """

    def __init__(self, plan: Plan, text: str) -> None:
        self._file: str = plan["source"]["spec_file"]
        self._lines = text.splitlines()
        self._rules = [(rule["text"], rule["line"]) for rule in plan.get("rules", ())]
        self._spec = _parsed(text)
        if self._spec is None or len(self._spec.rules) != len(self._rules):
            self._spec, self._lines = None, []

    def rule(self, entry: Mapping[str, Any] | None) -> Rule | None:
        """A rule of the plan, with its line in the build."""
        if entry is None:
            return None
        key = (entry["text"], entry["line"])
        found = self._spec.rules[self._rules.index(key)] if self._spec and key in self._rules else None
        line = found.span.line if found else 0
        return Rule(*key[:1], self._file, key[1], line, self._quote(line), self._region(line))

    def pipeline(self, entry: Mapping[str, Any]) -> Rule:
        """What asks for the stages of a pipeline."""
        asked = self._spec.pipeline if self._spec else None
        line = asked.spans["axis"].line if asked and "axis" in asked.spans else 0
        return Rule(entry["text"], self._file, entry["line"], line, self._quote(line))

    def _quote(self, line: int) -> str:
        return self._lines[line - 1].strip() if 0 < line <= len(self._lines) else ""

    def _region(self, line: int) -> str:
        for region in self._spec.regions if self._spec else ():
            if any(rule.span.line == line for rule in region.layout):
                return ", ".join(selector.text for selector in region.at)
        return ""


def _parsed(text: str) -> Spec | None:
    try:
        return parse_spec(text, "spec.yaml")
    except GraphparError:
        return None
