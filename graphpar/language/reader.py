"""YAML text to nodes that know where they stand.

Only the structure is taken from PyYAML; scalars keep their text and are read as numbers, words or truth values where
the schema says what is expected (`scalars.py`). Refused here: a key given twice, anchors, aliases, merge keys, tags,
several documents in one file. Each of these can change a spec without being seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import yaml

from graphpar.errors import Diagnostic, Note, Span, raise_if_any
from graphpar.language.syntax import explain_syntax_error, leading_star


@dataclass(frozen=True)
class Scalar:
    """A scalar as written. `plain`: without quotes, so that YAML would give it a type; `inset`: its opening quote."""

    text: str
    span: Span
    plain: bool = True
    inset: int = 0

    def at(self, offset: int, length: int) -> Span:
        """The span of some of its characters."""
        return self.span.within(self.inset + offset, length)


@dataclass(frozen=True)
class Listing:
    """A YAML list."""

    items: tuple[Node, ...]
    span: Span


@dataclass(frozen=True)
class Mapping:
    """A YAML mapping, in the order of the file; its keys are distinct."""

    entries: tuple[tuple[Scalar, Node], ...]
    span: Span

    def get(self, key: str) -> Node | None:
        """The value of a key."""
        return next((value for name, value in self.entries if name.text == key), None)


Node = Scalar | Listing | Mapping


def read_yaml(text: str, path: str) -> Node:
    """The one document in `text`.

    Raises GraphparError with every problem of the text, or with the first syntax error alone: the rest is unknown.
    """
    reader = _Reader(text, path)
    try:
        reader.refuse_events()
        root = yaml.compose(text, Loader=yaml.BaseLoader) if not reader.problems else None
    except yaml.MarkedYAMLError as error:
        raise_if_any([explain_syntax_error(error, text, path)])
        raise  # not reached
    except yaml.reader.ReaderError as error:
        character = f"U+{ord(error.character):04X}" if isinstance(error.character, str) else f"byte {error.character}"
        raise_if_any(
            [Diagnostic("yaml-syntax", Span(path, 1, 1), f"the file contains {character}, which YAML does not allow")]
        )
        raise  # not reached
    raise_if_any(reader.problems)
    if root is None:
        raise_if_any([Diagnostic("yaml-syntax", Span(path, 1, 1), "the file is empty", fix="version: 1")])
    assert root is not None
    node = reader.convert(root)
    raise_if_any(reader.problems)
    return node


class _Reader:
    def __init__(self, text: str, path: str) -> None:
        self.text = text
        self.lines = text.splitlines()
        self.path = path
        self.problems: list[Diagnostic] = []

    def refuse_events(self) -> None:
        """Note everything in the event stream that is legal YAML and not allowed here."""
        documents = 0
        anchors: set[str] = set()
        for event in self._events():
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents == 2:
                    self._refuse(
                        "many-documents",
                        event,
                        "a spec is one YAML document; `---` begins a second one",
                        fix="remove it",
                    )
            elif isinstance(event, yaml.AliasEvent) and event.anchor not in anchors:
                self.problems.append(leading_star(f"*{event.anchor}", self._span(event)))
            elif isinstance(event, yaml.AliasEvent):
                self._refuse_anchor(event, f"`*{event.anchor}` is a YAML alias")
            elif isinstance(event, yaml.NodeEvent) and event.anchor is not None:
                anchors.add(event.anchor)
                self._refuse_anchor(event, f"`&{event.anchor}` is a YAML anchor")
            elif isinstance(event, (yaml.ScalarEvent, yaml.CollectionStartEvent)) and event.tag is not None:
                self._refuse(
                    "yaml-tag", event, f"`{event.tag}` is a YAML tag, and values here have no tags", fix="remove it"
                )

    def convert(self, node: yaml.Node) -> Node:
        """Our node of PyYAML's; keys must be scalars, each given once."""
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if isinstance(node, yaml.SequenceNode):
            return Listing(tuple(self.convert(item) for item in node.value), self._span(node))
        assert isinstance(node, yaml.MappingNode)
        entries: dict[str, tuple[Scalar, Node]] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self.problems.append(
                    Diagnostic("wrong-type", self._span(key_node), "a key must be a word, not a list or a mapping")
                )
                continue
            key = self._scalar(key_node)
            value = self.convert(value_node)
            if key.text == "<<" and key.plain:
                self._refuse_anchor(key_node, "`<<` is a YAML merge key")
            elif key.text in entries:
                self._duplicate(key, entries[key.text][0])
            else:
                entries[key.text] = (key, value)
        return Mapping(tuple(entries.values()), self._span(node))

    def _events(self) -> Iterator[yaml.Event]:
        yield from yaml.parse(self.text, Loader=yaml.BaseLoader)

    def _scalar(self, node: yaml.ScalarNode) -> Scalar:
        return Scalar(
            node.value, self._span(node), plain=node.style is None, inset=1 if node.style in ("'", '"') else 0
        )

    def _duplicate(self, key: Scalar, first: Scalar) -> None:
        self.problems.append(
            Diagnostic(
                "duplicate-key",
                key.span,
                f"key `{key.text}` is given twice",
                why=("most YAML readers keep the last value and drop the first without a word",),
                notes=(Note("it is first given here", first.span),),
                fix="keep one of the two; if both hold rules, put them into one list in the order that is meant",
            )
        )

    def _refuse_anchor(self, at: yaml.Event | yaml.Node, what: str) -> None:
        self._refuse(
            "yaml-anchor",
            at,
            f"{what}, and a spec is written out in full",
            why="with references the text on a line is no longer what applies there, and no message could point at it",
            fix="write the value again in its place",
        )

    def _refuse(
        self, code: str, at: yaml.Event | yaml.Node, message: str, why: str = "", fix: str | None = None
    ) -> None:
        self.problems.append(Diagnostic(code, self._span(at), message, why=(why,) if why else (), fix=fix))

    def _span(self, at: yaml.Event | yaml.Node) -> Span:
        start, end = at.start_mark, at.end_mark
        first_line = self.lines[start.line] if start.line < len(self.lines) else ""
        length = end.column - start.column if end.line == start.line else len(first_line.rstrip()) - start.column
        return Span(self.path, start.line + 1, start.column + 1, max(length, 1))
