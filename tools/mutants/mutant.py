"""What a mutant is."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from importlib import import_module
from typing import Any
from unittest.mock import patch

Files = dict[str, str]  # the text of model.py, plan.json, init.json and, with a pipeline, schedule.csv


class NothingToMutateError(Exception):
    """An edit does not apply to its build: the table is out of date."""


@dataclass(frozen=True)
class Text:
    """The first match of `pattern`, behind the first match of `behind`, becomes `new`, a template of re."""

    pattern: str
    new: str
    behind: str = ""
    file: str = "model.py"

    def apply(self, files: Files) -> Files:
        """The files with the edit."""
        text = files[self.file]
        anchor = re.search(self.behind, text)
        start = anchor.end() if anchor else 0
        after, count = re.subn(self.pattern, self.new, text[start:], count=1)
        if anchor is None or not count or after == text[start:]:
            raise NothingToMutateError(f"{self.pattern!r} behind {self.behind!r}")
        return {**files, self.file: text[:start] + after}


@dataclass(frozen=True)
class Json:
    """A change of a JSON file of the build."""

    change: Callable[[Any], object]
    file: str = "plan.json"

    def apply(self, files: Files) -> Files:
        """The files with the edit."""
        document = json.loads(files[self.file])
        self.change(document)
        text = json.dumps(document)
        if text == json.dumps(json.loads(files[self.file])):
            raise NothingToMutateError(self.file)
        return {**files, self.file: text}


@dataclass(frozen=True)
class Patch:
    """Another value for a name of the runtime, or of what verification uses of it, made from the right one."""

    name: str  # "package.module:Class.method"
    make: Callable[[Any], Any]

    def active(self) -> Any:
        """A context in which the name has the wrong value."""
        module, _, path = self.name.partition(":")
        *owners, last = path.split(".")
        owner = reduce(getattr, owners, import_module(module))
        right = getattr(owner, last)
        is_static = owners and isinstance(vars(owner)[last], staticmethod)
        wrong = self.make(right)
        return patch.object(owner, last, staticmethod(wrong) if is_static else wrong)


@dataclass(frozen=True)
class Mutant:
    """A program with one mistake.

    `spoils` matches what the first difference may name instead of the edited line; `equivalent` says why the mutant
    computes the same after all. `everywhere` is a mistake that one device makes as well: the source model tells.
    """

    name: str
    kind: str
    build: str
    edits: tuple[Text | Json | Patch, ...]
    spoils: str = field(default="", kw_only=True)
    equivalent: str = field(default="", kw_only=True)
    everywhere: bool = field(default=False, kw_only=True)

    @property
    def patches(self) -> list[Patch]:
        """The edits that are made while the program runs."""
        return [edit for edit in self.edits if isinstance(edit, Patch)]

    def apply(self, files: Files) -> Files:
        """The files of the build with the edits."""
        for edit in self.edits:
            if not isinstance(edit, Patch):
                files = edit.apply(files)
        return files
