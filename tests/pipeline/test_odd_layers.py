"""Layers that are no loop: of several sizes, in another order, twice, and with a value that skips some."""

from __future__ import annotations

import pytest
import torch.nn.functional as F
from compiled_zoo import parsed
from torch import nn

from graphpar.capture.capture import Signature, capture
from graphpar.compiler import simplify
from graphpar.errors import GraphparError
from graphpar.pipeline.costs import costs
from graphpar.pipeline.cutting import resolve

SIZE, ROWS = 16, 1024
ORDERS = {"skip": [0, 1, 2, 3], "uneven": [0, 1, 2, 3], "backwards": [3, 2, 1, 0], "twice": [0, 1, 2, 3] * 2}


class Layer(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.up, self.down = nn.Linear(SIZE, hidden), nn.Linear(hidden, SIZE)

    def forward(self, x):
        return x + self.down(F.relu(self.up(x)))


class Model(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how = how
        self.table = nn.Embedding(50, SIZE)
        self.layers = nn.ModuleList(Layer(32 * (i + 1) if how == "uneven" else 32) for i in range(4))
        self.head = nn.Linear(SIZE, 50)

    def forward(self, idx, targets):
        values = [self.table(idx)]
        for index in ORDERS[self.how]:
            values.append(self.layers[index](values[-1]))
        x = values[-1] + values[1] if self.how == "skip" else values[-1]
        return F.cross_entropy(self.head(x).flatten(0, 1), targets.flatten())


def graph_of(how):
    return simplify(capture(lambda: Model(how), Signature(("idx", "targets"), {})).graph)


def cut(how):
    words = {"axis": "pp", "schedule": "1f1b", "microbatches": 4}
    return resolve(parsed({"version": 1, "mesh": {"pp": 2}, "layout": [], "pipeline": words}), graph_of(how))


def test_stages_have_about_the_same_operations_and_not_the_same_number_of_layers():
    found = costs(graph_of("uneven"), "layers").layers
    assert [cost // (ROWS * 2 * 2 * SIZE * 32) for cost in found] == [1, 2, 3, 4]
    assert cut("uneven").layers == (range(3), range(3, 4))


def test_a_value_may_skip_layers():
    assert cut("skip").layers == (range(2), range(2, 4))


@pytest.mark.parametrize(("how", "why"), [("backwards", "`layers.1` on stage 0 reads what `layers.2` on stage 1 makes"),
                                          ("twice", "`layers.0` on stage 0 reads what `layers.3` on stage 1 makes")])  # fmt: skip
def test_layers_in_another_order_are_told(how, why):
    with pytest.raises(GraphparError, match="does not run `layers` in the order of the list") as caught:
        cut(how)
    (told,) = caught.value.diagnostics
    assert told.code == "no-layers" and told.why[0] == why
