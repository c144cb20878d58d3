"""Named axes as text: `d_model (3 heads d_head)`, and back.

    tensor  = axis, axis, ...                     separated by spaces
    axis    = item | `1` | `_` | `(` sum `)`      `1` has one element, `_` has no name
    sum     = product `+` product `+` ...         the parts lie one after the other in the axis
    product = `1` | item item ...                 row-major, the last one varies fastest
    item    = name | name`'` | integer            an integer is a constant; `'` marks the second use of a dimension

A name may be refined: `d_ff.1` is the second dimension labelled d_ff, `d_head.half` a half of d_head.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn

from graphpar.errors import Diagnostic, GraphparError, Span

NAME_PATTERN = r"[a-z_][a-z0-9_]*(?:\.[a-z0-9_]+)?"


@dataclass(frozen=True)
class Item:
    """A dimension, or a constant number of equal blocks. `primed`: the second use of one dimension in a tensor."""

    name: str | int
    primed: bool = False

    def __str__(self) -> str:
        return f"{self.name}{chr(39) * self.primed}"


Segment = tuple[Item, ...]  # a product; empty: one element
Axis = tuple[Segment, ...]  # a sum of products
Tensor = tuple[Axis, ...]

UNNAMED = Item("_")
UNNAMED_AXIS: Axis = ((UNNAMED,),)
ONE_AXIS: Axis = ((),)


def parse_tensor(text: str, span: Span | None = None) -> Tensor:
    """The axes that `text` names. `span` says where its first character stands.

    Raises GraphparError with the caret on the offending part.
    """
    return _Parser(text, span).tensor()


def parse_axis(text: str, span: Span | None = None) -> Axis:
    """Like `parse_tensor`, for a text that must name exactly one axis."""
    parser = _Parser(text, span)
    tensor = parser.tensor()
    if len(tensor) != 1:
        parser.fail(f"one axis is expected here, these are {len(tensor)}", 0, len(text), fix=f"({text.strip()})")
    return tensor[0]


def format_tensor(tensor: Tensor, shards: Mapping[str, tuple[str, ...]] | None = None) -> str:
    """The text of a tensor's axes.

    `shards` gives the mesh axes of a dimension, outermost first: `heads@tp`, `seq@cp,tp`. `seq` and `seq'` are two
    entries of it.
    """
    return " ".join(format_axis(axis, shards) for axis in tensor)


def format_axis(axis: Axis, shards: Mapping[str, tuple[str, ...]] | None = None) -> str:
    """The text of one axis; see `format_tensor`."""
    text = " + ".join(_format_segment(segment, shards or {}) for segment in axis)
    return text if len(axis) == 1 and len(axis[0]) <= 1 else f"({text})"


def names_of(tensor: Tensor) -> tuple[str, ...]:
    """The dimensions that occur, each once, in order of first use and without `'`."""
    found = (item.name for axis in tensor for segment in axis for item in segment)
    return tuple(dict.fromkeys(name for name in found if isinstance(name, str) and name != UNNAMED.name))


def _format_segment(segment: Segment, shards: Mapping[str, tuple[str, ...]]) -> str:
    if not segment:
        return "1"
    axes = [shards.get(str(item), ()) for item in segment]
    return " ".join(f"{item}@{','.join(on)}" if on else str(item) for item, on in zip(segment, axes, strict=True))


@dataclass(frozen=True)
class _Token:
    text: str
    offset: int


_TOKEN = re.compile(rf"\s*(?:({NAME_PATTERN})|(\d+)|([()+'])|(\S))")


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while match := _TOKEN.match(text, position):
        group = match.lastindex or 0
        yield _Token(match.group(group), match.start(group))
        position = match.end()


class _Parser:
    """Recursive descent over the tokens of one text."""

    def __init__(self, text: str, span: Span | None) -> None:
        self.text = text
        self.span = span
        self.tokens = list(_tokens(text))
        self.position = 0
        self.seen: dict[Item, int] = {}  # item -> index of the axis that has it

    def tensor(self) -> Tensor:
        axes: list[Axis] = []
        while self._peek():
            axes.append(self._axis(len(axes)))
        if not axes:
            self.fail("no axis is named here", 0, 1, fix="_ for an axis without a name, 1 for one with one element")
        return tuple(axes)

    def fail(self, problem: str, offset: int, length: int, *, why: str = "", fix: str | None = None) -> NoReturn:
        message = problem if self.span else f"{problem} (in `{self.text}`, character {offset + 1})"
        span = self.span.within(offset, length) if self.span else None
        raise GraphparError(Diagnostic("bad-axes", span, message, why=(why,) if why else (), fix=fix))

    def _peek(self) -> str:
        return self.tokens[self.position].text if self.position < len(self.tokens) else ""

    def _next(self) -> _Token:
        if self.position == len(self.tokens):
            self.fail(
                "the text ends before this axis does", max(len(self.text) - 1, 0), 1, fix=f"{self.text.rstrip()})"
            )
        self.position += 1
        return self.tokens[self.position - 1]

    def _axis(self, index: int) -> Axis:
        if self._peek() != "(":
            token = self._next()
            return ONE_AXIS if token.text == "1" else ((self._item(token, index, ()),),)
        opening = self._next()
        segments: list[Segment] = []
        items: list[Item] = []
        while True:
            if not self._peek():
                self.fail("this bracket is never closed", opening.offset, 1, fix=f"{self.text.rstrip()})")
            token = self._next()
            if token.text == "1" and not items and self._peek() in ("+", ")"):
                token = self._next()
            elif token.text not in ("+", ")"):
                items.append(self._item(token, index, items))
                continue
            elif not items:
                self.fail(f"a dimension is expected before `{token.text}`", token.offset, 1)
            segments.append(tuple(items))
            items = []
            if token.text == ")":
                return tuple(segments)

    def _item(self, token: _Token, index: int, before: tuple[Item, ...] | list[Item]) -> Item:
        if token.text == "(":
            self.fail(
                "brackets do not nest",
                token.offset,
                1,
                why="an axis is one sum of products; a product of products is the longer product",
                fix="(a b c) for (a (b c))",
            )
        if token.text.isdecimal():
            return self._constant(token)
        if not re.fullmatch(NAME_PATTERN, token.text):
            self._unexpected(token)
        primed = self._peek() == "'" and self.tokens[self.position].offset == token.offset + len(token.text)
        self.position += primed
        item = Item(token.text, primed)
        return item if item == UNNAMED else self._once(item, token, index, before)

    def _constant(self, token: _Token) -> Item:
        if int(token.text) < 2:
            self.fail(
                f"the constant {token.text} adds nothing to a product",
                token.offset,
                len(token.text),
                why="a constant counts equal blocks, so it is 2 or more; an axis with one element is a 1 on its own",
            )
        if token.text.startswith("0"):
            self.fail(
                "a constant is written without leading zeros", token.offset, len(token.text), fix=token.text.lstrip("0")
            )
        return Item(int(token.text))

    def _once(self, item: Item, token: _Token, index: int, before: tuple[Item, ...] | list[Item]) -> Item:
        first = self.seen.setdefault(item, index)
        if first != index or item in before:
            self.fail(
                f"`{item}` occurs twice in this tensor",
                token.offset,
                len(str(item)),
                why="a dimension indexes one axis; only the parts of a sum may repeat it",
                fix=f"{item}'"
                if not item.primed
                else "a dimension can be used twice at most: give this one another name",
            )
        return item

    def _unexpected(self, token: _Token) -> NoReturn:
        hints = {
            "@": "where a dimension lives is said in `layout`, not here",
            ",": "axes are separated by spaces",
            "*": "a product is written with spaces: (a b)",
            "'": "`'` follows a name without a space: seq'",
        }
        why = hints.get(token.text, "names are written in lower case: letters, digits and _")
        self.fail(f"`{token.text}` does not belong in an axis", token.offset, len(token.text), why=why)
