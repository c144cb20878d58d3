"""What `graphpar compile` says of the build that it wrote."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Any

from graphpar.explain.claims import Yield, yields
from graphpar.explain.experts import describe_experts
from graphpar.explain.memory import Memory, Sharded, memory, sharded, spell
from graphpar.explain.tables import Table, print_tables
from graphpar.explain.traffic import Tokens, Traffic, tokens, traffic
from graphpar.language.schema import Spec
from graphpar.pipeline.cutting import Cutting
from graphpar.pipeline.describe import describe
from graphpar.place.place import Placed

HOST = 8  # ranks: what most hosts with several accelerators have


@dataclass(frozen=True)
class Summary:
    """A build in numbers. `said` are choices made without being asked, `launch` the line that starts training."""

    model: str
    mesh: Mapping[str, int]
    layout: Sequence[str]
    sharded: Sharded
    memory: Memory
    tokens: Tokens
    traffic: tuple[Traffic, ...]
    yields: tuple[Yield, ...]
    said: tuple[str, ...]
    folder: Path
    launch: str
    pipeline: tuple[str, ...] = ()
    experts: tuple[str, ...] = ()

    @property
    def ranks(self) -> int:
        """The ranks of the mesh."""
        return prod(self.mesh.values())

    def to_json(self) -> dict[str, Any]:
        """The same as JSON values."""
        return {
            "ok": True,
            "build": str(self.folder),
            "model": self.model,
            "mesh": dict(self.mesh),
            "layout": list(self.layout),
            "pipeline": list(self.pipeline),
            "experts": list(self.experts),
            "sharded": asdict(self.sharded),
            "memory_per_rank": {**asdict(self.memory), "total": self.memory.total},
            "tokens": asdict(self.tokens),
            "collectives": [asdict(t) for t in self.traffic],
            "yields": [asdict(y) for y in self.yields],
            "notes": list(self.said),
            "launch": self.launch,
        }

    def show(self) -> None:
        """Print it."""
        mesh = " x ".join(f"{axis}={size}" for axis, size in self.mesh.items())
        lines = [
            f"{self.model} on mesh {mesh}, {self.ranks} rank{'s' if self.ranks > 1 else ''}",
            *([f"  layout   {'   '.join(self.layout)}"] if self.layout else []),
            f"  sharded  {self.sharded}",
        ]
        for word, texts in (("pipeline", self.pipeline), ("experts", self.experts)):
            lines += [f"  {word if i == 0 else '':8} {text}" for i, text in enumerate(texts)]
        closing = [*(f"note: {text}" for text in (*map(str, self.yields), *self.said))]
        closing += [""] if closing else []
        closing += [f"wrote {self.folder}", f"  {self.launch}"]
        print_tables(lines, [self._memory(), self._traffic()], closing)

    def _memory(self) -> Table:
        m, whose = self.memory, "of the fullest" if self.pipeline else "per"
        rows = [
            ("parameters", m.parameters),
            ("gradients", m.gradients),
            ("AdamW moments", m.moments),
            ("buffers", m.buffers),
        ]
        return Table(
            f"memory {whose} rank, activations apart (parameters on one device: {spell(m.whole)})",
            ("what", "bytes"),
            [*((name, spell(size)) for name, size in rows if size), ("sum", spell(m.total))],
        )

    def _traffic(self) -> Table:
        size = self.tokens
        rows = [(t.phase, t.kind, t.axis, str(t.count), spell(t.bytes)) for t in self.traffic]
        whose = "of the rank that sends most, per step" if self.pipeline else "per step and rank"
        title = f"collectives {whose}, for a batch of {size.batch} x {size.seq} tokens ({size.why})"
        if not rows:
            return Table(f"{title}: none", (), [])
        return Table(title, ("phase", "kind", "axis", "count", "bytes"), rows)


def summarize(
    plan: Mapping[str, Any],
    placed: Placed,
    spec: Spec,
    said: Iterable[str],
    folder: Path,
    cutting: Cutting | None = None,
) -> Summary:
    """Everything that is worth saying of a build."""
    size = tokens(plan, _given(spec))
    ranks = prod(plan["mesh"].values())
    return Summary(
        model=f"{plan['class']} ({plan['source']['model']})",
        mesh=plan["mesh"],
        layout=plan["layout"],
        sharded=sharded(plan),
        memory=memory(plan),
        tokens=size,
        traffic=traffic(plan, size),
        yields=yields(placed),
        said=(*said, *_idle(plan["mesh"], spec)),
        folder=folder,
        launch=f"{torchrun(ranks)} {folder / 'train.py'} --data {'ROWS' if plan['labels'] == 'row' else 'TEXT'}",
        pipeline=tuple(describe(cutting)) if cutting else (),
        experts=tuple(describe_experts(plan, size)),
    )


def _idle(mesh: Mapping[str, int], spec: Spec) -> list[str]:
    """The axes that nothing names: their ranks all do the same, which may be a rule that was forgotten."""
    named = {axis for rule in spec.rules for axis in rule.axes} | ({spec.pipeline.axis} if spec.pipeline else set())
    return [
        f"neither `layout` nor `pipeline` names {axis}: its {size} ranks compute the same"
        for axis, size in mesh.items()
        if size > 1 and axis not in named
    ]


def torchrun(ranks: int) -> str:
    """How to start so many ranks: on one host, or on several of the usual size."""
    if ranks <= HOST or ranks % HOST:
        return f"torchrun --standalone --nproc-per-node {ranks}"
    several = "--rdzv-backend c10d --rdzv-endpoint FIRST_HOST:29500"
    return f"torchrun --nnodes {ranks // HOST} --nproc-per-node {HOST} {several}"


def _given(spec: Spec) -> dict[str, int]:
    """The sizes of batch and seq in the spec's inputs."""
    return {name: size for entry in (spec.model.inputs if spec.model else ()) for name, size in entry.axes}
