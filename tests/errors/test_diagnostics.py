"""Diagnostics themselves: rendering, order, exit codes, near words."""

from __future__ import annotations

import json

import pytest

from graphpar.errors import (
    Diagnostic,
    GraphparError,
    Note,
    Span,
    any_of,
    did_you_mean,
    listing,
    raise_if_any,
    read_source,
    render,
    render_all,
    suggestions,
    to_json,
)

SOURCE = "first\n\tlayout: [a, b]\n"
FULL = Diagnostic(
    "some-code",
    Span("spec.yaml", 2, 10, 6),
    "one sentence",
    why=("1 + 1 = 2", "2 + 2 = 4"),
    notes=(Note("the other place", Span("spec.yaml", 1, 1)), Note("a fact")),
    fix="a: b\n  c: d",
)


def test_a_diagnostic_in_full():
    assert render(FULL, lambda _: SOURCE).splitlines() == [
        "spec.yaml:2:10: error[some-code]: one sentence",
        "    2 | \tlayout: [a, b]",
        "      | \t        ^^^^^^",
        "    why: 1 + 1 = 2",
        "         2 + 2 = 4",
        "    note: spec.yaml:1:1: the other place",
        "    note: a fact",
        "    fix: a: b",
        "           c: d",
    ]


def test_what_is_not_known_is_left_out():
    assert render(Diagnostic("x", None, "m")) == "error[x]: m"
    assert render(Diagnostic("x", Span("gone.py", 3, 1), "m"), lambda _: None) == "gone.py:3:1: error[x]: m"
    assert render(Diagnostic("x", Span("short.py", 9, 1), "m"), lambda _: "one line") == "short.py:9:1: error[x]: m"
    assert render(Diagnostic("x", None, "m", severity="warning")).startswith("warning[x]")


def test_a_caret_stays_on_its_line():
    line = render(Diagnostic("x", Span("f", 1, 3, 99), "m"), lambda _: "abcd").splitlines()[-1]
    assert line == "      |   ^^"


def test_many_are_one_exception_in_file_order():
    later, earlier = Diagnostic("b", Span("f", 9, 1), "m"), Diagnostic("a", Span("f", 2, 1), "m")
    with pytest.raises(GraphparError) as caught:
        raise_if_any([later, earlier])
    assert caught.value.diagnostics == (earlier, later)
    assert render_all(caught.value, lambda _: None) == "f:2:1: error[a]: m\n\nf:9:1: error[b]: m"
    raise_if_any([])
    with pytest.raises(ValueError, match="at least one"):
        GraphparError([])


def test_the_exit_code_follows_the_earliest_phase():
    spec, model, check = (Diagnostic("x", None, "m", kind=kind) for kind in ("spec", "model", "check"))
    assert [d.exit_code for d in (spec, model, check)] == [2, 3, 1]
    assert GraphparError([check, model, spec]).exit_code == 2
    assert GraphparError([check, model]).exit_code == 3
    assert GraphparError(check).exit_code == 1


def test_json_has_the_same_fields():
    fields = json.loads(json.dumps(to_json(FULL)))
    assert fields["code"] == "some-code" and fields["kind"] == "spec" and fields["severity"] == "error"
    assert fields["span"] == {"file": "spec.yaml", "line": 2, "column": 10, "length": 6}
    assert fields["why"] == ["1 + 1 = 2", "2 + 2 = 4"] and fields["fix"] == "a: b\n  c: d"
    assert [note["span"] is None for note in fields["notes"]] == [False, True]
    assert to_json(Diagnostic("x", None, "m"))["span"] is None


def test_near_words_are_at_most_two_edits_away():
    known = ["heads", "kv_heads", "d_head", "seq", "dp", "tp"]
    assert suggestions("head", known) == ("heads",)
    assert suggestions("haeds", known) == ("heads",)
    assert suggestions("Heads", known) == ("heads",)
    assert suggestions("vocab", known) == ()
    assert suggestions("mp", known) == ("dp", "tp")
    assert suggestions("xx", known) == ()
    assert suggestions("x", known) == ()
    assert did_you_mean("mp", known) == "; did you mean `dp` or `tp`?"
    assert did_you_mean("vocab", known) == ""


def test_lists_of_words():
    assert any_of(["a"]) == "`a`"
    assert any_of(["a", "b", "c"]) == "`a`, `b` or `c`"
    assert listing([str(n) for n in range(15)], "numbers").startswith("numbers: 0 1")
    assert listing([str(n) for n in range(16)], "numbers") == "numbers: 16, too many to list here"
    assert listing([], "numbers") == "there are no numbers"


def test_sources_are_read_from_disk(tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_text("é: 1\n", encoding="utf-8")
    assert read_source(str(path)) == "é: 1\n"
    assert read_source(str(tmp_path / "gone")) is None
