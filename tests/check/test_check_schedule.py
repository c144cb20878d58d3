"""What is said of a schedule.csv: its words, its ranks, its order, and ranks that wait for ever."""

from __future__ import annotations

from typing import Any

import pytest

from graphpar.check.schedule import check_schedule
from graphpar.language.schedules import SCHEDULES
from graphpar.schedules.actions import Action, parse, spell
from graphpar.schedules.messages import Event, Message, blocked, placed, unpaired
from graphpar.schedules.orders import order

RIGHT = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"


def plan(text: str = RIGHT, microbatches: int = 2) -> dict[str, Any]:
    rows = {str(rank): row.split(",") for rank, row in enumerate(text.splitlines())}
    stages = [{"rank": 0}, {"rank": 1}]
    pipeline = {"axis": "pp", "microbatches": microbatches, "stages": stages, "order": rows}
    return {"mesh": {"pp": 2, "tp": 2}, "pipeline": pipeline}


def said(text: str, document: dict[str, Any] | None = None) -> list[tuple[int, int, str]]:
    return [(f.line, f.column, f.message) for f in check_schedule(text, document or plan())]


def test_nothing_is_said_of_what_is_right() -> None:
    assert said(RIGHT) == []
    assert check_schedule("", {"pipeline": None}) == []


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("0F0,0X1,0B0,0B1\n1F0,1B0,1F1,1B1\n", 1, 5, "0X1 is no action"),
        ("0F0,0F1,0B0,0B1\n", 1, 1, "there are 1 rows, and pp has 2 ranks"),
        ("1F0,1B0,1F1,1B1\n0F0,0F1,0B0,0B1\n", 1, 1, "rank 0 runs stage 1, which is on rank 1 in the plan"),
        ("0F1,0F0,0B0,0B1\n1F0,1B0,1F1,1B1\n", 1, 1, "rank 0 does 0F1 as number 1, where plan.json has 0F0"),
        ("0F0,0F1,0B0\n1F0,1B0,1F1,1B1\n", 1, 9, "rank 0 does nothing as number 4, where plan.json has 0B1"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text: str, line: int, column: int, message: str) -> None:
    assert (line, column, message) in said(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0F0,0F1,0B0\n1F0,1B0,1F1,1B1\n", "stage 0, microbatch 1: F"),
        (
            "0F0,0F1,0B0,0B1\n1B0,1F0,1F1,1B1\n",
            "from here on every rank waits for another: rank 0 waits at 0B0 for 1I0",
        ),
    ],
)
def test_a_plan_that_cannot_run_is_told_as_well(text: str, words: str) -> None:
    assert any(words in message for _, _, message in said(text, plan(text)))


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(("ranks", "microbatches"), [(2, 4), (4, 8), (8, 16)])
def test_every_schedule_ends_though_each_send_waits_for_its_receive(name: str, ranks: int, microbatches: int) -> None:
    rows = placed(order(name, ranks, SCHEDULES[name].usual, microbatches))
    assert unpaired(rows) == []
    assert blocked(rows) == {}
    assert sum(isinstance(item, Event) for row in rows.values() for item in row) > 0


FIRST, SECOND = Message(Action(0, "F", 0), 0, 1), Message(Action(0, "F", 1), 0, 1)


def row(*items: str | Event) -> list[Any]:
    return [parse(item) if isinstance(item, str) else item for item in items]


def test_messages_in_another_order_than_their_receives_are_told() -> None:
    rows = {
        0: row("0F0", Event("send", FIRST), "0F1", Event("send", SECOND)),
        1: row(Event("receive", SECOND), Event("receive", FIRST), "1F0", "1F1"),
    }
    assert unpaired(rows) == ["rank 0 sends 0F0 as message 1 to rank 1, which receives 0F1"]
    del rows[1][0]
    assert unpaired(rows) == ["rank 0 sends 0F1 as message 2 to rank 1, which receives nothing"]


def test_two_ranks_that_send_before_they_receive_wait_for_ever() -> None:
    back = Message(Action(1, "B", 0), 1, 0)
    rows = {
        0: row("0F0", Event("send", FIRST), Event("receive", back), "0B0"),
        1: row("1F1", Event("send", back), Event("receive", FIRST)),
    }
    assert set(blocked(rows)) == {0, 1}
    assert "waits to send what 0F0 makes, from rank 0 to rank 1" in blocked(rows)[0]


def test_words_are_read_as_they_are_written() -> None:
    assert all(spell(parse(word)) == word for word in ("3F11", "(0F1;1B0)OVERLAP_F_B"))
