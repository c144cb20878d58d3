"""Which repeated blocks become a loop."""

from __future__ import annotations

import re

import pytest
from builds import Small, compiled

LOOPS = {
    "sliced_tables": 1,  # each call is given slices of its own, all equal
    "rotary_pairs": 1,
    "layer_index": 0,  # each block reads its own number
    "reverse_layers": 0,
    "skipped_layers": 0,
    "unet_skips": 0,
}


@pytest.mark.parametrize("model", LOOPS)
def test_blocks_that_follow_each_other_in_one_way_are_a_loop(model: str) -> None:
    text = compiled(Small(model), "dp2").files["model.py"]
    assert len(re.findall(r"^ +for \w+ in self", text, re.MULTILINE)) == LOOPS[model]


def test_what_every_block_is_given_is_made_once() -> None:
    text = compiled(Small("sliced_tables"), "tp2").files["model.py"]
    for table in ("cos", "sin", "scale"):
        assert text.count(f"self.{table}[") == 1
    assert "x = block(x, cos, sin, scale)" in text or "h = block(h, cos, sin, scale)" in text
