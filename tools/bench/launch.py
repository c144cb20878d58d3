"""The ranks of a measurement: started by torchrun, one thread each."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def launched(worker: str, root: Path, settings: dict[str, Any], ranks: int) -> list[dict[str, Any]]:
    """What the ranks of `tools.bench.<worker>` found with these settings and the builds in `root`.

    Ends the program with status 1 if a rank fails.
    """
    (root / "settings.json").write_text(json.dumps(settings))
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, *launch, "-m", f"tools.bench.{worker}", str(root)]
    if subprocess.run(command, cwd=ROOT, env=environment).returncode:
        sys.exit(1)
    return json.loads((root / "results.json").read_text())
