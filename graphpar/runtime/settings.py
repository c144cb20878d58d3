"""The settings of a training run: the command line of train.py, checked against the plan."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from graphpar.runtime.plan import Plan
from graphpar.runtime.problems import UsageError

HELD_OUT = 10  # one token or row in this many, at the end of the data, is never trained on
ROW = '{"ids": [5, 0, 7], "label": 2}'
_DATA = {
    False: "text files, folders of them, or .bin files of uint16 tokens",
    True: f"files with a row of --seq token ids and its label to a line: {ROW}",
}


@dataclass(frozen=True)
class Settings:
    """How to train. The batch is the global one: all ranks and all microbatches of one step."""

    data: tuple[Path, ...]
    out: Path
    tokenizer: Path | None
    load: Path | None
    resume: bool
    steps: int
    batch: int  # sequences
    accumulate: int  # microbatches per step
    seq: int  # tokens
    lr: float
    min_lr: float
    warmup: int  # steps
    weight_decay: float
    betas: tuple[float, float]
    clip: float  # largest gradient norm; 0: never clip
    seed: int
    eval_every: int  # steps; 0: only at the end
    eval_batches: int
    save_every: int  # steps; 0: only at the end
    save: bool
    precision: str  # "fp32" or "bf16"
    timeout: float  # seconds
    threads: int | None
    traceback: bool

    @property
    def rows(self) -> int:
        """Sequences per microbatch, over all ranks."""
        return self.batch // self.accumulate

    @property
    def max_norm(self) -> float:
        """The norm that gradients are scaled down to."""
        return self.clip or math.inf

    def evaluates(self, step: int) -> bool:
        """Whether to evaluate after `step`."""
        return self.eval_batches > 0 and self._due(step, self.eval_every)

    def saves(self, step: int) -> bool:
        """Whether to save after `step`."""
        return self.save and self._due(step, self.save_every)

    def _due(self, step: int, every: int) -> bool:
        return step + 1 == self.steps or (every > 0 and (step + 1) % every == 0)

    @property
    def tokens(self) -> int:
        """Tokens per step, over all ranks."""
        return self.batch * self.seq


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


class _Help(argparse.HelpFormatter):
    """Shows the defaults that are plain values; where a default needs words, the help has them."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if not action.help or action.default in (None, argparse.SUPPRESS) or action.nargs == 0:
            return action.help
        values = action.default if isinstance(action.default, tuple) else (action.default,)
        return f"{action.help}  [default: {' '.join(map(str, values))}]".replace("%", "%%")


def read_settings(plan: Plan, arguments: Sequence[str] | None = None) -> Settings:
    """Parse the command line. Raises UsageError, with the arithmetic, for what the plan cannot run."""
    given = _parser(plan).parse_args(arguments)
    if given.accumulate is None:
        given.accumulate = plan.pipeline.microbatches if plan.pipeline else 1
    if given.batch is None:
        given.batch = 4 * plan.ways(0) * max(given.accumulate, 1)
    if given.min_lr is None:
        given.min_lr = given.lr / 10
    given.data, given.betas = tuple(given.data), tuple(given.betas)
    settings = Settings(**vars(given))
    problems = _problems(settings, plan)
    if problems:
        raise UsageError("; ".join(problems))
    return settings


def _parser(plan: Plan) -> argparse.ArgumentParser:
    seq, rows = min(plan.max_seq or 128, 1024), 4 * plan.ways(0)
    parser = _Parser(
        prog="train.py",
        description="Train the compiled model. Start it with torchrun.",
        formatter_class=_Help,
    )
    files = parser.add_argument_group("files")
    files.add_argument("--data", type=Path, nargs="+", required=True, metavar="PATH", help=_DATA[plan.labels == "row"])
    files.add_argument("--tokenizer", type=Path, metavar="FILE", help="a tokenizer.json; without it, bytes are tokens")
    files.add_argument("--load", type=Path, metavar="FILE", help="start from a .safetensors file of the source model")
    files.add_argument("--out", type=Path, default=Path("run"), metavar="DIR", help="metrics, checkpoints, weights")
    files.add_argument("--resume", action="store_true", help="go on from the newest complete checkpoint in --out")
    files.add_argument("--save-every", type=int, default=0, metavar="STEPS",
                       help="steps between checkpoints with weights; 0: only at the end")  # fmt: skip
    files.add_argument("--no-save", dest="save", action="store_false", help="save nothing, not even at the end")

    size = parser.add_argument_group("size")
    size.add_argument("--steps", type=int, default=100, metavar="N", help="updates of the parameters")
    size.add_argument("--batch", type=int, metavar="ROWS",
                      help=f"sequences per step over all ranks  [default: {rows} per microbatch]")  # fmt: skip
    if plan.pipeline is None:
        size.add_argument("--accumulate", type=int, default=1, metavar="N", help="microbatches per step")
    else:
        planned = plan.pipeline.microbatches
        size.add_argument("--accumulate", type=int, metavar="N",
                          help=f"microbatches per step: {planned}, as the pipeline was compiled for")  # fmt: skip
    size.add_argument("--seq", type=int, default=seq, metavar="TOKENS", help="tokens per sequence")
    size.add_argument("--eval-every", type=int, default=0, metavar="STEPS",
                      help="steps between evaluations; 0: only at the end")  # fmt: skip
    size.add_argument("--eval-batches", type=int, default=8, metavar="N", help="of held-out text; 0: never evaluate")

    learning = parser.add_argument_group("learning")
    learning.add_argument("--lr", type=float, default=3e-4, metavar="RATE", help="highest learning rate")
    learning.add_argument("--min-lr", type=float, metavar="RATE",
                          help="learning rate at the end  [default: a tenth of --lr]")  # fmt: skip
    learning.add_argument("--warmup", type=int, default=10, metavar="STEPS", help="over which the rate rises to --lr")
    learning.add_argument("--weight-decay", type=float, default=0.1, metavar="DECAY", help="AdamW's, of matrices only")
    learning.add_argument("--betas", type=float, nargs=2, default=(0.9, 0.95), metavar="BETA",
                          help="AdamW's, of its two moments")  # fmt: skip
    learning.add_argument("--clip", type=float, default=1.0, metavar="NORM",
                          help="largest norm of the gradient; 0: never clip")  # fmt: skip
    learning.add_argument("--seed", type=int, default=0, metavar="N",
                          help="of initial values, dropout and the order of the data")  # fmt: skip

    machine = parser.add_argument_group("machine")
    machine.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="bf16: matmuls by autocast")
    machine.add_argument("--timeout", type=float, default=300, metavar="SECONDS", help="longest wait for a peer")
    machine.add_argument("--threads", type=int, metavar="N", help="CPU threads per rank  [default: as torch chooses]")
    machine.add_argument("--traceback", action="store_true", help="show where a failure happened")
    return parser


def _problems(settings: Settings, plan: Plan) -> list[str]:
    return [
        *_out_of_range(settings),
        *(_microbatches(settings, plan) or _rows(settings, plan)),
        *_tokens(settings, plan),
    ]


def _out_of_range(settings: Settings) -> list[str]:
    at_least_one = ("steps", "batch", "accumulate", "seq")
    not_negative = ("warmup", "eval_every", "eval_batches", "save_every", "clip", "weight_decay", "min_lr", "seed")
    problems = [f"{_flag(name)} {getattr(settings, name)} must be 1 or more"
                for name in at_least_one if getattr(settings, name) < 1]  # fmt: skip
    problems += [f"{_flag(name)} {getattr(settings, name)} must be 0 or more"
                 for name in not_negative if getattr(settings, name) < 0]  # fmt: skip
    if settings.lr <= 0:
        problems.append(f"--lr {settings.lr} must be more than 0")
    if settings.min_lr > settings.lr:
        problems.append(f"--min-lr {settings.min_lr} is more than --lr {settings.lr}")
    if not all(0 <= beta < 1 for beta in settings.betas):
        problems.append(f"--betas {settings.betas[0]} {settings.betas[1]} must be in [0, 1)")
    if settings.timeout < 1:
        problems.append(f"--timeout {settings.timeout:g} must be 1 second or more")
    if settings.threads is not None and settings.threads < 1:
        problems.append(f"--threads {settings.threads} must be 1 or more")
    if settings.resume and settings.load:
        problems.append("--resume and --load both say where to start; give one")
    return problems


def _microbatches(settings: Settings, plan: Plan) -> list[str]:
    if plan.pipeline is None or settings.accumulate == plan.pipeline.microbatches or settings.accumulate < 1:
        return []
    right = plan.pipeline.microbatches
    return [
        f"--accumulate {settings.accumulate} is not the number of microbatches that the pipeline was compiled for;"
        f" --accumulate {right} would do, or compile with pipeline.microbatches: {settings.accumulate}"
    ]


def _rows(settings: Settings, plan: Plan) -> list[str]:
    if settings.accumulate > 1 and not plan.adds_up:
        what, right = "--accumulate", "--accumulate 1"
        if plan.pipeline is not None:
            what, right = "pipeline.microbatches:", "a build with pipeline.microbatches: 1"
        return [
            f"{what} {settings.accumulate} would change the loss: the model makes it of a whole batch, and those"
            f" of its parts do not add up to it; {right} with a smaller --batch would do"
        ]
    ranks = plan.ways(0)
    unit = ranks * settings.accumulate
    if unit < 1 or settings.batch < 1 or settings.batch % unit == 0:
        return []
    return [
        f"--batch {settings.batch} does not divide by {ranks} data ranks x {settings.accumulate} microbatches = {unit}"
        f"; {_nearest(settings.batch, unit)} would do"
    ]


def _tokens(settings: Settings, plan: Plan) -> list[str]:
    problems: list[str] = []
    unit = plan.seq_multiple
    if settings.seq > 0 and settings.seq % unit:
        cutters = " x ".join(f"{axis} {size}" for axis, size in plan.mesh.items())
        problems.append(
            f"--seq {settings.seq} does not divide by {unit}, as cutting seq over the mesh ({cutters}) needs"
            f"; {_nearest(settings.seq, unit)} would do"
        )
    if plan.max_seq is not None and settings.seq > plan.max_seq:
        problems.append(f"--seq {settings.seq} is more than the {plan.max_seq} positions that the model has")
    return problems


def _nearest(value: int, unit: int) -> str:
    below = value // unit * unit
    return f"{below} or {below + unit}" if below else str(unit)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
