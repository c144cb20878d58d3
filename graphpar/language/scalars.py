"""Reading one node as what is expected there: a word, a number, a truth value, one of a few choices, a section of keys.

YAML 1.1 and YAML 1.2 read some scalars without quotes differently: `no` is false or a word, `010` is 8 or 10, `8:8` is
488 or text. Such a scalar is refused where it stands, so that no reader of the file can take it for something else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping as Dict
from collections.abc import Sequence
from dataclasses import dataclass, field

from graphpar.errors import Diagnostic, Note, Span, any_of, did_you_mean, listing
from graphpar.language.reader import Listing, Mapping, Node, Scalar

Section = Dict[str, tuple[Scalar, Node]]

_INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[+-]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][+-]?[0-9]+)?|[+-]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_SWITCH = re.compile(r"(?i:yes|no|on|off)")
_TWO_READINGS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"[+-]?0[0-9_]+"), "YAML 1.1 reads a number with a leading zero in base 8, YAML 1.2 in base 10"),
    (re.compile(r"[+-]?0[xob][0-9a-fA-F_]+"), "not every YAML version reads numbers in bases other than 10"),
    (
        re.compile(r"[+-]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?"),
        "YAML 1.1 reads digits with colons in base 60: 8:8 is 488",
    ),
    (re.compile(r"[+-]?[0-9][0-9.]*_[0-9_.]*"), "YAML 1.1 drops the underscores of a number, YAML 1.2 reads text"),
    (re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}.*"), "YAML 1.1 reads a date here, YAML 1.2 text"),
)


@dataclass
class Problems:
    """The diagnostics found so far, in the order of finding."""

    found: list[Diagnostic] = field(default_factory=list)

    def add(
        self, code: str, span: Span, message: str, *, why: str = "", notes: Sequence[Note] = (), fix: str | None = None
    ) -> None:
        """Note one more mistake of the spec."""
        self.found.append(Diagnostic(code, span, message, why=(why,) if why else (), notes=tuple(notes), fix=fix))


def is_null(node: Node) -> bool:
    """Whether nothing is written, or a word that means nothing."""
    return isinstance(node, Scalar) and node.plain and node.text in ("", "~", "null", "Null", "NULL")


def truth(node: Node) -> bool | None:
    """The truth value that a plain scalar is in every YAML version, None for anything else."""
    if isinstance(node, Scalar) and node.plain and node.text in ("true", "True", "TRUE", "false", "False", "FALSE"):
        return node.text.lower() == "true"
    return None


def kind_of(node: Node) -> str:
    """What a node is, for messages."""
    if isinstance(node, Scalar):
        return "nothing" if is_null(node) else f"`{node.text}`" if node.plain else f'`"{node.text}"`'
    return "a list" if isinstance(node, Listing) else "a mapping"


def word(node: Node, what: str, problems: Problems, *, fix: str | None = None) -> str | None:
    """The text of a scalar that no YAML version takes for something else; `what` says what it should be."""
    if not isinstance(node, Scalar) or is_null(node) or truth(node) is not None:
        problems.add("wrong-type", node.span, f"{what} is expected here, not {kind_of(node)}", fix=fix)
        return None
    return node.text if not node.plain or _one_reading(node, problems, fix, f"{what} is expected here") else None


def integer(node: Node, what: str, problems: Problems, *, least: int = 1, fix: str | None = None) -> int | None:
    """A whole number of at least `least`."""
    text = _numeral(node, _INTEGER, what, problems, fix)
    if text is not None and int(text) < least:
        problems.add("bad-size", node.span, f"{what} must be at least {least}, and this is {int(text)}", fix=fix)
        return None
    return int(text) if text is not None else None


def number(node: Node, what: str, problems: Problems, *, fix: str | None = None) -> float | None:
    """A number above 0, whole or not."""
    text = _numeral(node, _FLOAT, what, problems, fix)
    if text is not None and not 0 < _float(text) < float("inf"):
        problems.add("bad-size", node.span, f"{what} must be above 0 and finite, and this is {text}", fix=fix)
        return None
    return _float(text) if text is not None else None


def boolean(node: Node, problems: Problems) -> bool | None:
    """`true` or `false`."""
    if (value := truth(node)) is not None:
        return value
    fix = None
    if isinstance(node, Scalar) and _SWITCH.fullmatch(node.text):
        fix = "true" if node.text.lower() in ("yes", "on") else "false"
    problems.add("wrong-type", node.span, f"`true` or `false` is expected here, not {kind_of(node)}", fix=fix)
    return None


def choice(node: Node, options: Sequence[str], problems: Problems) -> str | None:
    """One of a few words."""
    text = word(node, any_of(options), problems)
    if text is not None and text not in options:
        hint = did_you_mean(text, options)
        problems.add("unknown-choice", node.span, f"{any_of(options)} is expected here, not `{text}`{hint}")
        return None
    return text


def section(
    node: Node, what: str, known: Sequence[str], problems: Problems, absent: Dict[str, str] | None = None
) -> Section:
    """The entries of a mapping with a fixed set of keys. `absent`: keys that this version has no meaning for yet."""
    entries: dict[str, tuple[Scalar, Node]] = {}
    for key, value in named_entries(node, what, problems):
        if key.text in known:
            entries[key.text] = (key, value)
        elif absent and key.text in absent:
            _not_available(key, absent[key.text], problems)
        else:
            problems.add(
                "unknown-key",
                key.span,
                f"{what} has no key `{key.text}`{did_you_mean(key.text, known)}",
                why="a key that is not understood is never skipped",
                notes=(Note(listing(known, "known keys")),),
            )
    return entries


def named_entries(node: Node, what: str, problems: Problems) -> tuple[tuple[Scalar, Node], ...]:
    """The entries of a mapping whose keys are names chosen by the author, without keys that are no words."""
    if isinstance(node, Mapping):
        return tuple((key, value) for key, value in node.entries if word(key, "a key", problems) is not None)
    problems.add("wrong-type", node.span, f"{what} must be a mapping, not {kind_of(node)}")
    return ()


def items(node: Node, what: str, problems: Problems, *, fix: str | None = None) -> tuple[Node, ...]:
    """The items of a list."""
    if isinstance(node, Listing):
        return node.items
    problems.add("wrong-type", node.span, f"{what} must be a list, not {kind_of(node)}", fix=fix)
    return ()


def data(node: Node, problems: Problems) -> object:
    """A node as plain data: numbers, words, truth values, null, lists and mappings of them."""
    if isinstance(node, Listing):
        return [data(item, problems) for item in node.items]
    if isinstance(node, Mapping):
        return {key.text: data(value, problems) for key, value in named_entries(node, "a mapping", problems)}
    if not node.plain:
        return node.text
    if is_null(node):
        return None
    if (value := truth(node)) is not None:
        return value
    if not _one_reading(node, problems, None):
        return None
    if _INTEGER.fullmatch(node.text):
        return int(node.text)
    if _FLOAT.fullmatch(node.text):
        return _float(node.text)
    return node.text


def _numeral(node: Node, form: re.Pattern[str], what: str, problems: Problems, fix: str | None) -> str | None:
    """The text of a plain scalar of this form that all versions of YAML read alike."""
    if isinstance(node, Scalar) and node.plain and not _one_reading(node, problems, fix, f"{what} is expected here"):
        return None
    if isinstance(node, Scalar) and form.fullmatch(node.text):
        if node.plain:
            return node.text
        why, fix = "in quotes a number is text", node.text
    else:
        why = ""
    problems.add("wrong-type", node.span, f"{what} is expected here, not {kind_of(node)}", why=why, fix=fix)
    return None


def _float(text: str) -> float:
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))


def _one_reading(node: Scalar, problems: Problems, fix: str | None, expected: str = "") -> bool:
    """Whether all versions of YAML read this plain scalar alike; notes a problem if they do not."""
    if _SWITCH.fullmatch(node.text):
        why = "YAML 1.1 reads yes, no, on and off as truth values, YAML 1.2 as words"
        mend = fix or f'"{node.text}" for the word; true or false for a truth value'
    else:
        why = next((reason for pattern, reason in _TWO_READINGS if pattern.fullmatch(node.text)), "")
        decimal = node.text.lstrip("+-0") or "0"
        mend = f"{decimal}   # in base 10" if decimal.isdecimal() else fix or f'"{node.text}"   # as text'
    if why:
        problems.add(
            "ambiguous-scalar",
            node.span,
            f"{expected}{', and ' if expected else ''}YAML versions disagree on `{node.text}`",
            why=why,
            fix=mend,
        )
    return not why


def _not_available(key: Scalar, purpose: str, problems: Problems) -> None:
    problems.add(
        "not-available",
        key.span,
        f"`{key.text}` is not available yet in this version",
        why=f"it is the place for {purpose}; it is refused rather than read without effect",
        fix=f"remove `{key.text}`",
    )
