"""A build's train.py, started as people start it."""

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Ended:
    """How a run ended."""

    code: int
    out: str
    err: str
    seconds: float

    @property
    def said(self) -> list[str]:
        """The lines of our own about trouble, without what torchrun says."""
        return [line for line in self.err.splitlines() if line.startswith(("rank ", "train.py: error:"))]


def start(folder: Path, *arguments: str, ranks: int | None = 2, restarts: int = 0, limit: float = 90) -> Ended:
    """Run the build's train.py under torchrun with `ranks` processes, or by itself."""
    launch = [sys.executable]
    if ranks is not None:
        launch += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        launch += ["--max-restarts", str(restarts)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    began = time.monotonic()
    done = subprocess.run(
        [*launch, "train.py", "--data", "text.txt", *arguments],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=limit, check=False,
    )  # fmt: skip
    return Ended(done.returncode, done.stdout, done.stderr, time.monotonic() - began)
