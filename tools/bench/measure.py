"""Paired timing: in every round each program runs once, so that what disturbs the machine disturbs them all."""

import gc
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median

import torch
import torch.distributed as dist
from torch import Tensor

SAMPLE = 0.02  # seconds: a sample is as many steps as fill this
WARM_UP = 3  # rounds


@dataclass(frozen=True)
class Ratio:
    """The median over rounds of one program's time by another's, with a 95 % interval."""

    of: str
    to: str
    median: float
    low: float
    high: float


def times(steps: Mapping[str, Callable[[], Tensor]], rounds: int) -> dict[str, list[float]]:
    """Seconds per step, of the slowest rank, of each program in each round. All ranks must call it.

    The order within a round is drawn anew, the same on every rank.
    """
    repeats = {name: _repeats(step) for name, step in steps.items()}
    order = random.Random(0)
    samples: dict[str, list[float]] = {name: [] for name in steps}
    gc.collect()
    gc.disable()  # a collection that another program's garbage sets off is not this one's time
    try:
        for number in range(WARM_UP + rounds):
            for name in order.sample(list(steps), len(steps)):
                seconds = _sample(steps[name], repeats[name])
                if number >= WARM_UP:
                    samples[name].append(seconds)
            gc.collect()
    finally:
        gc.enable()
    return {name: _slowest(seconds) for name, seconds in samples.items()}


def _sample(step: Callable[[], Tensor], repeats: int) -> float:
    dist.barrier()
    start = time.perf_counter()
    for _ in range(repeats):
        step()
    return (time.perf_counter() - start) / repeats


def _repeats(step: Callable[[], Tensor]) -> int:
    step()
    return max(1, round(SAMPLE / _slowest([min(_sample(step, 1) for _ in range(3))])[0]))


def _slowest(seconds: Sequence[float]) -> list[float]:
    longest = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(longest, dist.ReduceOp.MAX)
    return longest.tolist()


def ratio(samples: Mapping[str, Sequence[float]], of: str, to: str, resamples: int = 4000) -> Ratio:
    """Paired: each round gives one ratio. The interval is the bootstrap's, over rounds."""
    ratios = torch.tensor(samples[of], dtype=torch.float64) / torch.tensor(samples[to], dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    drawn = ratios[torch.randint(len(ratios), (resamples, len(ratios)), generator=generator)]
    medians = torch.quantile(drawn, 0.5, dim=1)  # torch's median of an even number is the lower one
    low, high = torch.quantile(medians, torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return Ratio(of, to, median(ratios.tolist()), low, high)


def summary(samples: Mapping[str, Sequence[float]], of: str) -> dict[str, object]:
    """Medians in milliseconds and the ratios of `of` to each other program, as JSON knows them."""
    return {
        "milliseconds": {name: round(1e3 * median(seconds), 3) for name, seconds in samples.items()},
        "ratios": [asdict(ratio(samples, of, name)) for name in samples if name != of],
    }
