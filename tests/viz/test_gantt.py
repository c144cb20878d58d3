"""The picture of a pipeline's step: every action once, nothing on top of anything else."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from graphpar.schedules.actions import every
from graphpar.schedules.clock import Costs, clock
from graphpar.schedules.orders import order
from graphpar.viz.colours import ACTIONS, lighter
from graphpar.viz.gantt import LETTER, gantt

SVG = "{http://www.w3.org/2000/svg}"
CASES = [
    ("gpipe", 1, 1, 1), ("1f1b", 2, 1, 4), ("1f1b", 16, 1, 64), ("interleaved", 4, 2, 8), ("interleaved", 2, 3, 4),
    ("zero_bubble", 8, 1, 16), ("zbv", 4, 2, 8), ("dualpipev", 2, 2, 4),
]  # fmt: skip


def made(name, ranks, stages, microbatches):
    actions = order(name, ranks, stages, microbatches)
    uneven = [1e9 * (1 + s / 8) for s in range(ranks * stages)]
    return actions, clock(actions, Costs(uneven, uneven, uneven))


def drawn(timeline, title="a title"):
    root = ElementTree.fromstring(gantt(timeline, title, "pp"))
    assert root.tag == f"{SVG}svg"
    return root


def numbers(element, *names):
    return [float(element.get(name)) for name in names]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_every_action_has_a_box_of_its_own_in_the_row_of_its_rank(case):
    actions, timeline = made(*case)
    root = drawn(timeline)
    boxes = [g for g in root.iter(f"{SVG}g") if g.find(f"{SVG}rect[@class='action']") is not None]
    named = Counter(g.find(f"{SVG}title").text.partition(":")[0] for g in boxes)
    assert named == Counter(str(action) for _, action in every(actions))
    rows: dict[float, list[tuple[float, float]]] = {}
    for g in boxes:
        x, y, width = numbers(g.find(f"{SVG}rect"), "x", "y", "width")
        rows.setdefault(y, []).append((x, x + width))
    assert [len(rows[y]) for y in sorted(rows)] == [sum(map(len, actions[rank])) for rank in sorted(actions)]
    for row in rows.values():
        assert all(first[1] <= then[0] + 0.02 for first, then in pairwise(sorted(row)))


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_texts_stay_apart_and_on_the_paper(case):
    root = drawn(made(*case)[1], "1f1b: 16 stages on 16 ranks")
    width, height = numbers(root, "width", "height")
    assert 700 <= width <= 2000 and height <= 700
    lines: dict[float, list[tuple[float, float]]] = {}
    for text in root.iter(f"{SVG}text"):
        x, y = numbers(text, "x", "y")
        wide = 0.9 * LETTER * len(text.text) * float(text.get("font-size", 12)) / 12
        left = x - {"start": 0, "middle": wide / 2, "end": wide}[text.get("text-anchor", "start")]
        assert left >= 0 and left + wide <= width and y < height
        lines.setdefault(y, []).append((left, left + wide))
    for line in lines.values():
        assert all(first[1] <= then[0] for first, then in pairwise(sorted(line)))


def test_a_microbatch_is_named_where_there_is_room():
    wide, narrow = made("gpipe", 2, 1, 2)[1], made("1f1b", 4, 1, 100)[1]
    numbered = [len(list(drawn(timeline).iterfind(f".//{SVG}g/{SVG}text"))) for timeline in (wide, narrow)]
    assert numbered[0] == 8 and numbered[1] < 800


def test_the_picture_says_bubble_and_title_and_escapes_it():
    timeline = made("1f1b", 2, 1, 4)[1]
    text = gantt(timeline, "a < b & c", "pp")
    assert "a &lt; b &amp; c" in text and f"bubble {timeline.bubble:.3f}" in text
    assert text == gantt(timeline, "a < b & c", "pp")


def test_kinds_are_told_apart_in_grey():
    def grey(colour):
        red, green, blue = (int(part, 16) for part in re.findall("[0-9a-f]{2}", colour))
        return 0.3 * red + 0.59 * green + 0.11 * blue

    shades = [grey(colour) for colour in ACTIONS.values()]
    assert all(then - first > 30 for first, then in pairwise(shades))
    assert grey(lighter(ACTIONS["F"], 0.3)) > grey(ACTIONS["F"])
