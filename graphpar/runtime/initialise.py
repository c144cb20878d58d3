"""Initial values: the source model's own for a seed, or those of a file. Each rank keeps its shards only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from graphpar.runtime.mesh import Mesh
from graphpar.runtime.plan import Plan, PlanError, Stored
from graphpar.runtime.problems import UsageError
from graphpar.runtime.replay import replay
from graphpar.runtime.shards import cut
from graphpar.runtime.stages import Stages
from graphpar.runtime.tape import Tape
from graphpar.runtime.tensor_file import TensorFile
from graphpar.runtime.whole import here, require_equal_replicas


def initialise(model: nn.Module, plan: Plan, tape: Tape, seed: int, mesh: Mesh) -> None:
    """Fill the shards with the values that the source model has on one device after `torch.manual_seed(seed)`."""
    _replayed(held_tensors(model, plan), plan.stored, tape, seed, mesh)
    check_values(model, plan, mesh)


def load(model: nn.Module, plan: Plan, tape: Tape, path: Path, mesh: Mesh) -> None:
    """Fill the shards from a .safetensors file (or a folder of them) with the source model's names.

    A tied tensor may stand under any of its names. What the file format leaves out (buffers that are not persistent)
    comes from the constructor; what no loss depends on may be there or not. Raises UsageError, naming the keys, unless
    the file fits exactly.
    """
    held = held_tensors(model, plan)
    found = _find(plan, _open(path), path)
    for name, (file, key) in found.items():
        if name in held:
            _put(held[name], file.read(key), plan.stored[name], mesh)
    rest = {name: stored for name, stored in plan.stored.items() if name not in found}
    _replayed(held, rest, tape, 0, mesh)
    check_values(model, plan, mesh)


def held_tensors(model: nn.Module, plan: Plan) -> dict[str, Tensor]:
    """The model's parameters and buffers by name: of a pipeline, those of this rank's stages.

    Raises PlanError unless they are those of the plan.
    """
    held: dict[str, Tensor] = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    at = model.mesh.coordinates if isinstance(model, Stages) else {}
    planned = {name: stored for name, stored in plan.stored.items() if stored.held_at(at)}
    differing = held.keys() ^ planned.keys()
    if differing:
        raise PlanError(f"model.py and plan.json differ in {', '.join(sorted(differing))}: compile the model again")
    for name, stored in planned.items():
        if tuple(held[name].shape) != stored.local_shape:
            shape = tuple(held[name].shape)
            raise PlanError(f"{name} has shape {shape} in model.py and {stored.local_shape} in plan.json")
    return {name: held[name] for name in planned}


def unread_values(plan: Plan, tape: Tape, mesh: Mesh) -> dict[str, Tensor]:
    """What the program does not hold of the source's state_dict, as the constructor makes it."""
    found: dict[str, Tensor] = {}
    names = {_key(stored, tape): name for name, stored in plan.unread.items()}
    with mesh.randomness.lock, torch.random.fork_rng(devices=[]):
        replay(tape, 0, list(names), lambda key, full: found.update({names[key]: full.clone()}))
    return found


def check_values(model: nn.Module, plan: Plan, mesh: Mesh) -> None:
    """Raise unless every value was set and replicas agree. All ranks must call it."""
    held = held_tensors(model, plan)
    wrong = [name for name, tensor in held.items() if tensor.is_floating_point() and tensor.isnan().any()]
    if wrong:
        raise PlanError(f"no value was given to (part of) {', '.join(wrong)}")
    require_equal_replicas(held, plan.stored, mesh)


def _replayed(held: Mapping[str, Tensor], wanted: Mapping[str, Stored], tape: Tape, seed: int, mesh: Mesh) -> None:
    keys = {_key(stored, tape): name for name, stored in wanted.items() if name in held}

    def receive(key: str, full: Tensor) -> None:
        _put(held[keys[key]], full, wanted[keys[key]], mesh)

    if keys:
        with mesh.randomness.lock:  # simulated ranks share torch's generator
            replay(tape, seed, list(keys), receive)


def _key(stored: Stored, tape: Tape) -> str:
    for name in stored.names:
        if name in tape.state:
            return name
    raise PlanError(f"init.json does not say how {stored.name} gets its values")


def _put(local: Tensor, full: Tensor, stored: Stored, mesh: Mesh) -> None:
    if tuple(full.shape) != stored.shape:
        raise UsageError(f"{stored.name} should have shape {stored.shape}, not {tuple(full.shape)}")
    with torch.no_grad():
        local.copy_(cut(full.detach(), stored.dims, here(mesh)))


def _open(path: Path) -> dict[str, TensorFile]:
    """Each key, with the file that has it."""
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    if not files:
        raise UsageError(f"{path} has no .safetensors files")
    return {name: file for file in map(TensorFile, files) for name in file.names}


def _find(plan: Plan, keys: Mapping[str, TensorFile], path: Path) -> dict[str, tuple[TensorFile, str]]:
    found: dict[str, tuple[TensorFile, str]] = {}
    missing: list[str] = []
    for name, stored in plan.saved.items():
        present = [key for key in stored.names if key in keys]
        if not present:
            missing.append(name)
            continue
        _require_tied(keys, present, path)
        found[name] = keys[present[0]], present[0]
    every = (*plan.saved.values(), *plan.unread.values())
    unknown = keys.keys() - {key for stored in every for key in stored.names}
    if missing or unknown:
        lines = [f"{what}: {_listed(names)}" for what, names in
                 (("missing in the file", missing), ("not in the model", sorted(unknown))) if names]  # fmt: skip
        raise UsageError(f"{path} does not fit the model; {'; '.join(lines)}")
    return found


def _require_tied(keys: Mapping[str, TensorFile], present: list[str], path: Path) -> None:
    first = keys[present[0]].read(present[0])
    for key in present[1:]:
        if not torch.equal(first, keys[key].read(key)):
            raise UsageError(f"{path} has different values for {present[0]} and {key}, which the model ties")


def _listed(names: Iterable[str]) -> str:
    every = list(names)
    return ", ".join(every[:8]) + (f" and {len(every) - 8} more" if len(every) > 8 else "")
