"""Where the messages of an order stand, and that ranks which wait for them come to an end.

torch's runtime puts a send right behind the action that makes its value, and the receive, at the same moment, behind
whatever the other rank has come to. A rank passes a receive at once and waits in the action that takes the value. A
send is passed too while few are under way; here it waits until the other rank has come to its receive, which is the
least that any transport promises.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from graphpar.schedules.actions import Action, Order, Step, homes


class Message(NamedTuple):
    """A value, or with a backward its gradient, on its way from one rank to another."""

    action: Action  # that made it
    source: int  # rank
    target: int

    def __str__(self) -> str:
        what = "what" if self.action.kind == "F" else "the gradient that"
        return f"{what} {self.action} makes, from rank {self.source} to rank {self.target}"


class Event(NamedTuple):
    """One end of a message, in a rank's row."""

    kind: Literal["send", "receive"]
    message: Message


Row: TypeAlias = Sequence[Step | Event]


def message_of(action: Action, ranks: Mapping[int, int]) -> Message | None:
    """What an action sends to another rank. `ranks` are those of the stages."""
    target = action.stage + (1 if action.kind == "F" else -1)
    if action.kind == "W" or target not in ranks or ranks[target] == ranks[action.stage]:
        return None
    made = action._replace(kind="F" if action.kind == "F" else "B")
    return Message(made, ranks[action.stage], ranks[target])


def placed(order: Order) -> dict[int, list[Step | Event]]:
    """The rows of an order with its messages. Rows end early where no rank can go on."""
    ranks = homes(order)
    waiting = {rank: list(steps) for rank, steps in order.items()}
    rows: dict[int, list[Step | Event]] = {rank: [] for rank in order}
    here: dict[int, set[Action]] = {rank: set() for rank in order}  # what a rank has made, or receives
    going = True
    while going:
        going = False
        for rank in sorted(waiting):
            steps = waiting[rank]
            if not steps or not all(_ready(action, here[rank], ranks) for action in steps[0]):
                continue
            going = True
            rows[rank].append(steps[0])
            for action in steps.pop(0):
                here[rank].add(action._replace(kind="F" if action.kind == "F" else "B"))
                if message := message_of(action, ranks):
                    rows[rank].append(Event("send", message))
                    rows[message.target].append(Event("receive", message))
                    here[message.target].add(message.action)
    return rows


def _ready(action: Action, here: set[Action], ranks: Mapping[int, int]) -> bool:
    return all(needed in here for needed in _inputs(action, ranks))


def _inputs(action: Action, ranks: Mapping[int, int]) -> Iterator[Action]:
    """The action of the stage before, or behind, whose result an action takes."""
    before = action.stage - 1 if action.kind == "F" else action.stage + 1
    if action.kind != "W" and before in ranks:
        yield Action(before, "F" if action.kind == "F" else "B", action.microbatch)


def unpaired(rows: Mapping[int, Row]) -> list[str]:
    """Where one rank does not receive what another sends it, in the same order."""
    found: list[str] = []
    events = [(rank, item) for rank, row in rows.items() for item in row if isinstance(item, Event)]
    pairs = sorted({(e.message.source, e.message.target) for _, e in events})
    for source, target in pairs:
        way = [(rank, e) for rank, e in events if (e.message.source, e.message.target) == (source, target)]
        sent = [e.message for rank, e in way if e.kind == "send" and rank == source]
        received = [e.message for rank, e in way if e.kind == "receive" and rank == target]
        if sent != received or len(sent) + len(received) != len(way):
            at = next(
                (i for i, (a, b) in enumerate(zip(sent, received, strict=False)) if a != b),
                min(len(sent), len(received)),
            )
            ends = (str(side[at].action) if at < len(side) else "nothing" for side in (sent, received))
            found.append(
                f"rank {source} sends {next(ends)} as message {at + 1} to rank {target}, which receives {next(ends)}"
            )
    return found


def blocked(rows: Mapping[int, Row]) -> dict[int, str]:
    """What each rank waits for in vain; nothing if all come to the end of their rows."""
    ranks = {a.stage: rank for rank, row in rows.items() for item in row if not isinstance(item, Event) for a in item}
    at = dict.fromkeys(rows, 0)
    open_: set[Message] = set()  # receives that a rank has come to
    arrived: dict[int, set[Action]] = {rank: set() for rank in rows}
    going = True
    while going:
        going = False
        for rank, row in rows.items():
            while at[rank] < len(row) and _passes(row[at[rank]], open_, arrived[rank], ranks):
                item = row[at[rank]]
                if not isinstance(item, Event):
                    arrived[rank].update(a._replace(kind="F" if a.kind == "F" else "B") for a in item)
                elif item.kind == "receive":
                    open_.add(item.message)
                else:
                    arrived[item.message.target].add(item.message.action)
                at[rank] += 1
                going = True
    return {rank: _at(row[at[rank]]) for rank, row in rows.items() if at[rank] < len(row)}


def _passes(item: Step | Event, open_: set[Message], arrived: set[Action], ranks: Mapping[int, int]) -> bool:
    if isinstance(item, Event):
        return item.kind == "receive" or item.message in open_
    return all(_ready(action, arrived, ranks) for action in item)


def _at(item: Step | Event) -> str:
    if isinstance(item, Event):
        return f"waits to send {item.message}"
    return f"waits at {' and '.join(map(str, item))} for its input"
