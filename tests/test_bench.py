"""The bench runs, compares what it times, and says what it found; how fast anything is depends on the machine."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tools.bench.measure import ratio

ROOT = Path(__file__).parents[1]


def test_ratios_are_paired_so_that_a_slow_round_says_nothing():
    machine = [1.0, 1.0, 50.0, 1.0, 3.0, 1.0]
    samples = {"a": [0.9 * t for t in machine], "b": machine}
    found = ratio(samples, "a", "b")
    assert (found.of, found.to) == ("a", "b")
    assert found.low == pytest.approx(0.9) and found.median == pytest.approx(0.9) and found.high == pytest.approx(0.9)


def test_the_interval_covers_what_rounds_disagree_about():
    samples = {"a": [0.8, 1.0, 1.2, 0.9, 1.1], "b": [1.0] * 5}
    found = ratio(samples, "a", "b")
    assert 0.8 <= found.low < found.median < found.high <= 1.2


def test_every_program_computes_the_same_and_is_timed(tmp_path):
    out = tmp_path / "bench.json"
    command = [sys.executable, "-m", "tools.bench", "--widths", "128", "--rounds", "2", "--json", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    document = json.loads(out.read_text())
    assert document["machine"]["torch"] and document["machine"]["cores"]
    found = {(r["layout"], r["width"]): {q["to"] for q in r["ratios"]} for r in document["results"]}
    assert found == {("tp", 128): {"by hand", "DTensor"}, ("dp", 128): {"DDP"}}
    assert all(ms > 0 for r in document["results"] for ms in r["milliseconds"].values())
    assert "next to" in done.stdout


def test_a_pipeline_by_hand_computes_the_same_and_is_timed(tmp_path):
    out = tmp_path / "bench.json"
    tiny = "--ranks 2 --widths 128 --batch 4 --microbatches 2 --rounds 2".split()
    command = [sys.executable, "-m", "tools.bench.pipelines", *tiny, "--json", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    (document,) = json.loads(out.read_text())
    assert [(r["layout"], [q["to"] for q in r["ratios"]]) for r in document["results"]] == [("pp", ["by hand"])]
