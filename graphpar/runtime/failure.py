"""Fail together, fast, once: every rank of a job ends when one cannot go on, and one line says which and where."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import NoReturn

import torch.distributed as dist

from graphpar.runtime.mesh import MeshError
from graphpar.runtime.plan import PlanError
from graphpar.runtime.problems import UsageError
from graphpar.runtime.say import say_everywhere
from graphpar.runtime.watch import Watch, place_of

_NEWS = 2.0  # seconds for the line of the rank that failed first to arrive
_GRACE = 10.0  # seconds after which a rank in trouble ends, whatever still holds it
_MISTAKE = "train.py: error: "

_leaving = threading.Lock()


def run(main: Callable[[Watch], None]) -> None:
    """Run `main` as this rank's part of the job; it calls `watch.begin` and tells its steps by `watch.at`.

    Ends the process: with 0 after a return; with 2 and `train.py: error: ...` for a mistake in settings, files or
    launch; with 1 and a line `rank 1, step 37: ValueError: ...` for anything else, here or on a peer.
    """
    watch = Watch()
    try:
        threading.Thread(target=_look_out, args=(watch,), daemon=True, name="watch").start()
        main(watch)
    except (UsageError, MeshError, PlanError) as error:
        watch.done()
        _let_this_rank_speak()
        _leave(2, _usage(watch, error))
    except KeyboardInterrupt:
        _leave(130, f"{watch.where}: interrupted" if watch.rank == 0 else None)
    except Exception as error:  # noqa: BLE001  whatever it is, the peers must not wait for this rank
        watch.done()
        _let_this_rank_speak()
        threading.Timer(_GRACE, os._exit, (1,)).start()
        if watch.traceback:
            traceback.print_exc()
        _leave(1, _line(watch, error))
    watch.done()
    if dist.is_initialized():
        dist.destroy_process_group()


def _let_this_rank_speak() -> None:
    """Torchrun ends all ranks as soon as one has ended; this one says its line first."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _usage(watch: Watch, error: Exception) -> str | None:
    """The line for a mistake; None where another rank says the same.

    Ranks make the same mistake at different times, some while others still import torch: the first one speaks.
    """
    line = f"{_MISTAKE}{_one_line(error)}"
    with contextlib.suppress(dist.DistError):
        watch.join()
    if not watch.joined:
        if os.environ.get("LOCAL_RANK", "0") == "0":
            return line
        time.sleep(_GRACE)  # an end of this rank would be the end of the one that speaks
        return None
    mine = f"{watch.where}: {line}"
    first = watch.publish(mine)
    return None if first != mine and first.endswith(line) else line


def _look_out(watch: Watch) -> None:
    def failed(line: str) -> None:
        if _MISTAKE in line:  # it is told, and says all
            _leave(2, None)
        _leave(1, _after(watch, line))

    def stuck() -> None:
        line = f"{watch.where}: no progress for {watch.waited:.0f} s (--timeout {watch.timeout:g}){_elsewhere(watch)}"
        first = watch.publish(line)
        _leave(1, line if first == line else _after(watch, first))

    watch.look_out(failed, stuck)


def _line(watch: Watch, error: Exception) -> str:
    mine = f"{watch.where}: {type(error).__name__}: {_one_line(error)}{_place(error)}"
    if not _is_broken_collective(error):
        first = watch.publish(mine)
        return mine if first == mine else _after(watch, first)
    deadline = time.monotonic() + _NEWS
    while (first := watch.first_failure()) is None and time.monotonic() < deadline:
        time.sleep(0.05)
    if first is None:
        silent = watch.silent_peer()
        broken = f"a collective broke{_place(error)}: {_one_line(error)}{_elsewhere(watch)}"
        first = watch.publish(f"{silent} died" if silent else broken)
    return _after(watch, first)


def _after(watch: Watch, first: str) -> str:
    return f"{watch.where}: stopped because {first}"


def _elsewhere(watch: Watch) -> str:
    peer = watch.elsewhere()
    return f"; {peer}" if peer else ""


def _is_broken_collective(error: Exception) -> bool:
    """Whether a peer, not this rank, is what went wrong."""
    if isinstance(error, dist.DistError):
        return True
    # Gloo raises plain RuntimeErrors, which name its source file and line
    return isinstance(error, RuntimeError) and any(word in str(error) for word in ("gloo/", "Gloo", "NCCL"))


def _one_line(error: BaseException) -> str:
    text = re.sub(r"^\[[^\]]*\]\s*", "", str(error))  # Gloo starts with the place in its own source
    return " ".join(text.split()) or type(error).__name__


def _place(error: Exception) -> str:
    """As in ` (model.py:41)`: the innermost line of the program's own folder that the error came through."""
    place = place_of(reversed(list(traceback.walk_tb(error.__traceback__))))
    return f" ({place})" if place else ""


def _leave(code: int, line: str | None) -> NoReturn:
    """End this process now: peers that are gone must not hold it in a destructor."""
    _leaving.acquire()  # the first thread that comes here has the word
    if line is not None:
        say_everywhere(line)
    sys.stdout.flush()
    os._exit(code)
