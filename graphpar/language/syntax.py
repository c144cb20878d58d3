"""YAML syntax errors, in terms of what the author of a spec meant to write."""

from __future__ import annotations

import re

import yaml

from graphpar.errors import Diagnostic, Note, Span

_BEFORE_BRACKET = re.compile(r"[\w/.*?]+$")
_BRACKET = re.compile(r"\[[^\]]*\](?:\.[\w.*?\[\]:-]*\w)?")


def explain_syntax_error(error: yaml.MarkedYAMLError, text: str, path: str) -> Diagnostic:
    """The diagnostic of PyYAML's error: what is wrong, at the place where it was noticed."""
    mark = error.problem_mark or error.context_mark
    row, column = (mark.line, mark.column) if mark else (0, 0)
    lines = text.splitlines()
    line = lines[row] if row < len(lines) else ""
    here = Span(path, row + 1, column + 1)
    problem, context = error.problem or "the text cannot be read", error.context or ""
    if context == "while scanning an alias" and error.context_mark:
        start = error.context_mark.column
        return leading_star(line[start:], Span(path, row + 1, start + 1))
    if problem.endswith("but got '['") and _BEFORE_BRACKET.search(line[:column]):
        return _bracket_in_flow(line, here, in_list="sequence" in context)
    if line[column : column + 1] == "\t":
        return Diagnostic("yaml-syntax", here, "YAML does not allow tabs for indentation", fix="indent with spaces")
    if "<block end>" in problem and error.context_mark:
        begun = Span(path, error.context_mark.line + 1, error.context_mark.column + 1)
        notes = (Note("the lines that it should continue begin here", begun),)
        word = line.strip() if line.lstrip().startswith("-") or "mapping" in context else f"- {line.strip()}"
        fix = f"{' ' * error.context_mark.column}{word}"
        message = "the indentation of this line fits nothing above it"
        return Diagnostic("yaml-syntax", here, message, notes=notes, fix=fix)
    if context.startswith("while parsing a flow") and error.context_mark:
        begun = Span(path, error.context_mark.line + 1, error.context_mark.column + 1)
        notes = (Note(f"{_plain(problem)} here", here),)
        return Diagnostic("yaml-syntax", begun, "what this bracket begins is not closed, or lacks a comma", notes=notes)
    if "cannot start any token" in problem:
        return Diagnostic(
            "yaml-syntax", here, f"a value cannot begin with `{line[column]}`", fix="put the value in quotes"
        )
    if problem.startswith("mapping values"):
        return Diagnostic(
            "yaml-syntax", here, "a second `: ` in one entry", fix="put a value with `: ` in it in quotes"
        )
    why = (f"it was noticed {_plain(context)}",) if context else ()
    return Diagnostic("yaml-syntax", here, f"this is not YAML: {_plain(problem)}", why=why)


def leading_star(written: str, span: Span) -> Diagnostic:
    """A value that begins with `*`, meant as a glob or as the rest of a mesh."""
    word = re.split(r"[,}\]\s]", written, maxsplit=1)[0]
    if word == "*":
        fix = "rest   # in a mesh: the ranks that the other axes leave over"
    else:
        fix = f"{word.lstrip('*.')}   # a selector matches at the end of a path and needs no star before it"
    why = "YAML reads a leading star as a reference to a value elsewhere in the file"
    return Diagnostic("leading-star", span.within(0, len(word)), "a value cannot begin with `*`", why=(why,), fix=fix)


def _bracket_in_flow(line: str, bracket: Span, *, in_list: bool) -> Diagnostic:
    """`[layers[0:2].mlp, ...]` or `{idx: int64[batch=8]}`: a bracket inside a flow list or a flow mapping."""
    column = bracket.column - 1
    before = _BEFORE_BRACKET.search(line[:column])
    after = _BRACKET.match(line, column)
    start = before.start() if before else column
    word = line[start : after.end() if after else len(line)]
    where = "[ ]" if in_list else "{ }"
    return Diagnostic(
        "bracket-in-flow",
        Span(bracket.file, bracket.line, start + 1, len(word)),
        f"YAML cannot read `{word}` inside {where}",
        why=(f"inside {where} a bracket begins a list of its own; in a value outside {where} it is plain text",),
        fix=_without_flow(line, word, in_list=in_list),
    )


def _without_flow(line: str, word: str, *, in_list: bool) -> str:
    whole = re.fullmatch(r"\s*(?:- )?(?P<key>[\w']+):\s*\[(?P<inner>.*)\]\s*", line.split(" #")[0])
    if in_list and whole:
        return f"{whole['key']}: {whole['inner'].strip()}"
    return f'"{word}"   # quoted, or on a line of its own'


def _plain(words: str) -> str:
    """PyYAML's wording, with what it quotes in backticks."""
    return re.sub(r"'([^']*)'", r"`\1`", words).replace("\\t", "tab")
