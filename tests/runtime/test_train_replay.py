"""The replayed constructor gives the source model's own values, and holds little memory on the way."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from recorded import recorded
from torch import Tensor, nn

from graphpar.runtime.plan import PlanError
from graphpar.runtime.replay import replay
from graphpar.runtime.tape import Op, Tape, read_tape


class Twice(nn.Module):
    """Fills its weights twice, ties two of them, zeroes one row and has buffers computed from constants."""

    def __init__(self, layers: int = 3) -> None:
        super().__init__()
        self.wte = nn.Embedding(64, 32, padding_idx=3)
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(layers))
        self.head = nn.Linear(32, 64, bias=False)
        self.register_buffer("rotary", 1.0 / 10000 ** (torch.arange(0, 8, 2).float() / 8), persistent=False)
        self.register_buffer("table", torch.tensor([1.0, 2.0]) * 2)
        for layer in self.layers:
            nn.init.uniform_(layer.weight, -0.1, 0.1)
            nn.init.zeros_(layer.bias)
        nn.init.normal_(self.wte.weight, std=0.02)
        with torch.no_grad():
            self.wte.weight[3].zero_()
        self.head.weight = self.wte.weight


def replayed(document: dict[str, Any], folder: Path, seed: int, names: list[str] | None = None) -> dict[str, Tensor]:
    path = folder / "init.json"
    path.write_text(json.dumps(document))
    tape = read_tape(path)
    values: dict[str, Tensor] = {}
    replay(tape, seed, names or list(tape.state), lambda name, full: values.update({name: full.clone()}))
    return values


def test_values_are_those_of_the_source_model_bit_for_bit(tmp_path: Path) -> None:
    document, _ = recorded(Twice)
    torch.manual_seed(5)
    source = Twice()
    values = replayed(document, tmp_path, seed=5)
    for name, tensor in [*source.named_parameters(remove_duplicate=False), *source.named_buffers()]:
        assert torch.equal(values[name], tensor), name
    assert values["wte.weight"][3].eq(0).all()


def test_only_about_one_tensor_is_alive_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document, _ = recorded(lambda: Twice(layers=12))
    (tmp_path / "init.json").write_text(json.dumps(document))
    tape = read_tape(tmp_path / "init.json")
    alive: list[int] = []
    run = Op.run

    def watched(op: Op, tensors: dict[int, Tensor], device: str) -> None:
        run(op, tensors, device)
        if device == "cpu":
            storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage() for tensor in tensors.values()}
            alive.append(sum(storage.nbytes() for storage in storages.values()))

    monkeypatch.setattr(Op, "run", watched)
    replay(tape, 0, list(tape.state), lambda name, full: None)
    largest = 64 * 32 * 4
    assert largest <= max(alive) <= 1.2 * largest  # the whole model is 7 times the largest


def test_buffers_alone_need_no_random_numbers(tmp_path: Path) -> None:
    document, source = recorded(Twice)
    state = torch.get_rng_state()
    values = replayed(document, tmp_path, seed=torch.initial_seed(), names=["rotary"])
    assert torch.equal(values["rotary"], source.get_buffer("rotary"))
    torch.manual_seed(torch.initial_seed())
    untouched = torch.rand(1)
    replayed(document, tmp_path, seed=torch.initial_seed(), names=["rotary"])
    assert torch.equal(torch.rand(1), untouched)
    torch.set_rng_state(state)


def test_a_parameter_without_values_is_refused() -> None:
    tape = Tape((Op("aten.empty.memory_format", [[2]], {}, (0,)),), {"w": 0})
    with pytest.raises(PlanError, match="never gives w a value"):
        replay(tape, 0, ["w"], lambda name, full: None)


def test_a_draw_that_repeats_until_it_fits_is_replayed_as_one_operation() -> None:
    ops = (
        Op("aten.empty.memory_format", [[50, 50]], {}, (0,)),
        Op("init.trunc_normal_", [{"tensor": 0}], {"std": 0.5, "a": -0.6, "b": 0.6}, (0,)),
        Op("aten.rand.default", [[3]], {}, (1,)),
    )
    values: dict[str, Tensor] = {}
    replay(Tape(ops, {"w": 0, "x": 1}), 3, ["w", "x"], lambda name, full: values.update({name: full.clone()}))
    torch.manual_seed(3)
    assert torch.equal(values["w"], nn.init.trunc_normal_(torch.empty(50, 50), std=0.5, a=-0.6, b=0.6))
    assert torch.equal(values["x"], torch.rand(3))
