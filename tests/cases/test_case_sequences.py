"""A model that shifts its labels itself: where the sequence is cut, none of them is lost."""

from __future__ import annotations

import pytest
import torch
from builds import layout
from parts import Block, Decoder
from torch import Tensor
from written import DP2_TP2, TP2_SP, Written, with_labels

pytestmark = pytest.mark.xdist_group("case sequences")
LENGTH = 8


class Shifting(Decoder):
    """Each token is to foretell the next one."""

    def loss(self, logits, labels):
        return super().loss(logits[:, :-1], labels[:, 1:])


SHIFTING = Written(lambda: Shifting([Block()]))
CUT = {
    "cp2": layout({"cp": 2}, "seq cp"),
    "cp4": layout({"cp": 4}, "seq cp"),
    "tp2+sp": TP2_SP,
    "dp2xcp2": layout({"dp": 2, "cp": 2}, "batch dp", "seq cp"),
    "dp2xtp2": DP2_TP2,  # nothing is cut
}


def label_at(position: int) -> dict[str, Tensor]:
    batch = with_labels(LENGTH, LENGTH, length=LENGTH, seed=position)
    batch["labels"][:, torch.arange(LENGTH) != position] = -100
    return batch


@pytest.mark.parametrize("name", CUT)
def test_no_label_is_lost_at_a_cut(name: str) -> None:
    for position in range(1, LENGTH):
        SHIFTING.holds(CUT[name], label_at(position))
