"""Saving and resuming a run.

A checkpoint is a folder with one file per rank and a manifest. All ranks write into an unfinished folder; when each has
its file on the disk, rank 0 adds the manifest (sizes and hashes of all files, shapes and cuts of all tensors) and gives
the folder its name; the file `latest` points to it last. Whatever is killed whenever, the newest complete checkpoint is
found again. A resumed run on the same mesh continues bit for bit.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from graphpar.runtime.files import digest, publish_folder, whole_file
from graphpar.runtime.grid import spelled
from graphpar.runtime.initialise import check_values, held_tensors
from graphpar.runtime.mesh import Mesh
from graphpar.runtime.plan import Plan
from graphpar.runtime.problems import UsageError
from graphpar.runtime.say import say
from graphpar.runtime.settings import Settings
from graphpar.runtime.whole import require_equal_replicas

_VERSION = 1
_KEPT = 2  # the newest, and one to fall back on


@dataclass(frozen=True)
class _Order:
    """What the order of the samples depends on: the same in every part of a run."""

    seed: int
    batch: int
    seq: int


class Checkpoints:
    """The checkpoints of a run, in `out/checkpoints`. Every method is called by all ranks together."""

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, plan: Plan, settings: Settings, mesh: Mesh
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.plan = plan
        self.mesh = mesh
        self.folder = settings.out / "checkpoints"
        self.order = _Order(settings.seed, settings.batch, settings.seq)
        self._resume = settings.resume

    def save(self, steps: int) -> None:
        """Save the state after `steps` steps. Raises ReplicaError, naming the parameter, when ranks have drifted."""
        require_equal_replicas(held_tensors(self.model, self.plan), self.plan.stored, self.mesh)
        unfinished = self.folder / ".unfinished"
        if self.mesh.rank == 0:
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(parents=True)
        self.mesh.world.barrier()
        with whole_file(unfinished / _file(self.mesh.rank)) as file:
            torch.save(self._state(), file)
        proofs = self._gather_proofs(unfinished / _file(self.mesh.rank))
        moments = self._gather_moments()
        if self.mesh.rank == 0:
            self._publish(unfinished, steps, proofs, moments)
        self.mesh.world.barrier()

    def resume(self) -> int:
        """Load the newest complete checkpoint; the number of steps that it has done.

        Raises UsageError when there is none, or when it belongs to another mesh, model or order of samples.
        """
        for name in self._candidates():
            manifest = self._complete(self.folder / name)
            if manifest is None:
                say(f"checkpoint {self.folder / name} is not complete; looking for an older one")
                continue
            self._require_same_run(manifest, name)
            self._load(self.folder / name / _file(self.mesh.rank), manifest)
            check_values(self.model, self.plan, self.mesh)
            return manifest["steps"]
        raise UsageError(f"--resume: no complete checkpoint in {self.folder}")

    def wanted(self) -> bool:
        """Whether to resume: as --resume asks, or because torchrun starts the job again after a failure.

        Raises UsageError when a new run would mix its checkpoints with those of an old one.
        """
        found = self._candidates()
        restarted = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
        if found and not (self._resume or restarted):
            raise UsageError(
                f"{self.folder.parent} holds a run that has come to {found[0]}; give --resume to go on with it,"
                f" or another --out"
            )
        return self._resume or (restarted and bool(found))

    # Saving

    def _state(self) -> dict[str, Any]:
        """This rank's part, by the source's names. Random numbers follow from (seed, step) and need no state."""
        held = {name: tensor.detach() for name, tensor in held_tensors(self.model, self.plan).items()}
        return {"tensors": held, "moments": self._moments(), "rng": torch.get_rng_state()}

    def _moments(self) -> dict[str, dict[str, Any]]:
        return {
            name: dict(self.optimizer.state[parameter])
            for name, parameter in self.model.named_parameters()
            if parameter in self.optimizer.state
        }

    def _gather_proofs(self, path: Path) -> list[dict[str, Any]]:
        """Size and hash of every rank's file; that they arrive says that all files are written."""
        mine = path.stat().st_size.to_bytes(8, "little") + digest(path)
        proof = torch.tensor(list(mine), dtype=torch.uint8, device=self.mesh.device)
        rows = self.mesh.world.all_gather(proof.unsqueeze(0), 0).tolist()
        return [{"bytes": int.from_bytes(bytes(row[:8]), "little"), "sha256": bytes(row[8:]).hex()} for row in rows]

    def _owners(self) -> dict[str, list[int]]:
        """Of a pipeline, which ranks hold each tensor."""
        return {name: list(held.owners.coordinates) for name, held in self.plan.stored.items() if held.owners}

    def _gather_moments(self) -> dict[str, list[str]]:
        """What the optimizer keeps of each parameter: of a pipeline, of the parameters of all ranks."""
        moments = {name: sorted(keys) for name, keys in self._moments().items()}
        if self.plan.pipeline is None:
            return moments
        mine = torch.tensor(list(json.dumps(moments).encode()), dtype=torch.uint8, device=self.mesh.device)
        length = torch.tensor(mine.numel(), device=self.mesh.device)
        padding = int(self.mesh.world.all_reduce(length, "max")) - mine.numel()
        padded = torch.nn.functional.pad(mine, (0, padding), value=ord(" "))
        rows = self.mesh.world.all_gather(padded.unsqueeze(0), 0).tolist()
        return {name: keys for row in rows for name, keys in json.loads(bytes(row)).items()}

    def _publish(
        self, unfinished: Path, steps: int, proofs: list[dict[str, Any]], moments: Mapping[str, list[str]]
    ) -> None:
        manifest = {
            "version": _VERSION,
            "steps": steps,
            "mesh": dict(self.plan.mesh),
            "order": asdict(self.order),
            "tensors": {name: {"shape": held.shape, "dims": held.dims} for name, held in self.plan.stored.items()},
            "moments": moments,
            "owners": self._owners(),
            "files": {_file(rank): proof for rank, proof in enumerate(proofs)},
        }
        with whole_file(unfinished / "manifest.json") as file:
            file.write(json.dumps(manifest, indent=1).encode())
        name = f"step-{steps:08d}"
        publish_folder(unfinished, self.folder / name)
        with whole_file(self.folder / "latest") as file:
            file.write(name.encode())
        for old in self._found()[_KEPT:]:
            shutil.rmtree(self.folder / old, ignore_errors=True)

    # Resuming

    def _found(self) -> list[str]:
        """The names of the checkpoints here, the latest first."""
        names = sorted((path.name for path in self.folder.glob("step-*")), reverse=True)
        pointer = self.folder / "latest"
        latest = pointer.read_text().strip() if pointer.exists() else ""
        return sorted(names, key=lambda name: name != latest)

    def _candidates(self) -> list[str]:
        """The same list on every rank: as rank 0 sees the folder."""
        steps = [int(name.removeprefix("step-")) for name in self._found()][:_KEPT] if self.mesh.rank == 0 else []
        padded = torch.tensor((steps + [-1] * _KEPT)[:_KEPT], device=self.mesh.device)
        return [f"step-{step:08d}" for step in self.mesh.world.broadcast(padded).tolist() if step >= 0]

    def _complete(self, folder: Path) -> dict[str, Any] | None:
        """The manifest, if every rank finds its file as it was written."""
        manifest = _manifest(folder)
        fits = manifest is not None and all(_intact(folder / name, proof, hashed=name == _file(self.mesh.rank))
                                            for name, proof in manifest["files"].items())  # fmt: skip
        broken = torch.tensor(int(not fits), device=self.mesh.device)
        return None if self.mesh.world.all_reduce(broken, "max").item() else manifest

    def _require_same_run(self, manifest: dict[str, Any], name: str) -> None:
        if manifest["version"] != _VERSION:
            raise UsageError(f"checkpoint {name} has version {manifest['version']}; this runtime reads {_VERSION}")
        if manifest["mesh"] != dict(self.plan.mesh):
            theirs, ours = spelled(manifest["mesh"]), spelled(self.plan.mesh)
            raise UsageError(
                f"checkpoint {name} is of mesh {theirs}, this program of {ours}; start from its weights with --load"
            )
        if manifest["tensors"].keys() != self.plan.stored.keys():
            differing = sorted(manifest["tensors"].keys() ^ self.plan.stored.keys())
            raise UsageError(f"checkpoint {name} is of another model; they differ in {', '.join(differing[:8])}")
        if manifest.get("owners", {}) != self._owners():
            raise UsageError(f"checkpoint {name} is of other stages; start from its weights with --load")
        for key, now in asdict(self.order).items():
            if manifest["order"][key] != now:
                raise UsageError(f"--{key} is {now}, but checkpoint {name} was written with {manifest['order'][key]}")

    def _load(self, path: Path, manifest: dict[str, Any]) -> None:
        state = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
        held = held_tensors(self.model, self.plan)
        with torch.no_grad():
            for name, tensor in held.items():
                tensor.copy_(_entry(state["tensors"], name, path))
        parameters = dict(self.model.named_parameters())
        held_moments = {name: keys for name, keys in manifest["moments"].items() if name in parameters}
        for name, keys in held_moments.items():
            saved = _entry(state["moments"], name, path)
            self.optimizer.state[parameters[name]] = {
                key: _on_device(_entry(saved, key, path, of=name), parameters[name]) for key in keys
            }
        torch.set_rng_state(state["rng"])


def _file(rank: int) -> str:
    return f"rank-{rank:05d}.pt"


def _manifest(folder: Path) -> dict[str, Any] | None:
    try:
        return json.loads((folder / "manifest.json").read_text())
    except (OSError, ValueError):
        return None


def _intact(path: Path, proof: Mapping[str, Any], *, hashed: bool) -> bool:
    if not path.exists() or path.stat().st_size != proof["bytes"]:
        return False
    return not hashed or digest(path).hex() == proof["sha256"]


def _entry(state: Mapping[str, Any], key: str, path: Path, of: str = "") -> Any:
    if key not in state:
        raise UsageError(f"{path} has no {key}" + (f" of {of}" if of else ""))
    return state[key]


def _on_device(value: Tensor, parameter: Tensor) -> Tensor:
    # a copy: the file stays mapped behind the loaded tensor
    return value.clone().to(parameter.device)
