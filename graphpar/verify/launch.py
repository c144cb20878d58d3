"""The ranks as processes under torchrun: real groups, real collectives.

    torchrun ... -m graphpar.verify.launch FOLDER

is what runs on each rank: it reads the tasks from FOLDER and leaves its results there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from graphpar.runtime.mesh import Mesh
from graphpar.verify.program import Program, Values, read_program
from graphpar.verify.ranks import Outcome, Runner, Task, perform

TAIL = 15  # lines of output that are told when a rank fails


class LaunchError(RuntimeError):
    """The processes did not finish their tasks."""


@dataclass(frozen=True)
class Order:
    """What the processes are told."""

    build: Path
    values: Values
    tasks: Sequence[Task]
    timeout: float


def launched(timeout: float) -> Runner:
    """One process for each rank; a failure ends them all."""

    def run(program: Program, values: Values, tasks: Sequence[Task]) -> list[Outcome]:
        with tempfile.TemporaryDirectory(prefix="graphpar-") as folder:
            torch.save(Order(program.folder.resolve(), values, tasks, timeout), Path(folder, "order.pt"))
            problem = _torchrun(program.ranks, Path(folder), timeout)
            if problem:
                return [LaunchError(problem) for _ in tasks]
            ranks = [
                torch.load(Path(folder, f"{rank}.pt"), map_location="cpu", weights_only=False)
                for rank in range(program.ranks)
            ]
        return [[rank[number] for rank in ranks] for number in range(len(tasks))]

    return run


def _torchrun(ranks: int, folder: Path, timeout: float) -> str:
    """Run all ranks; says what went wrong, if anything did."""
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    environment["PYTHONPATH"] = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, *words, "-m", "graphpar.verify.launch", str(folder)]
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.terminate()  # torchrun ends its ranks
        try:
            process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
        return f"{ranks} processes did not finish within {timeout:g} s"
    if process.returncode:
        lines = [line for line in output.splitlines() if line.strip()]
        own = [line for line in lines if "Error: " in line] or lines
        return "\n".join([f"torchrun ended with code {process.returncode}", *own[:1], *lines[-TAIL:]])
    return ""


def main(folder: Path) -> None:
    """One rank."""
    order: Order = torch.load(folder / "order.pt", weights_only=False)
    program = read_program(order.build)
    mesh = Mesh.from_env(program.mesh, timeout=order.timeout)
    results = [perform(task, program, mesh, order.values) for task in order.tasks]
    torch.save(results, folder / f"{mesh.rank}.pt")
    mesh.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
