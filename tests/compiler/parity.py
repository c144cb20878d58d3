"""Run a build on simulated ranks and compare it with the source model: loss, gradient norm, every gradient.

What a rank holds of a tensor is worked out here from `plan.json`, by indexing and not by the code under test.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

import torch
import zoo
from builds import Model, Small, compiled
from torch import Tensor

from graphpar.compiler import Build
from graphpar.runtime import GradientSums, Mesh, gradient_norm, simulate
from graphpar.runtime.plan import plan_of
from graphpar.verify.lift import lifted

TOLERANCE = 1e-9  # relative, in float64


@dataclass(frozen=True)
class Result:
    """One step of one rank, or of the source model: the whole batch's loss, the gradient norm, local gradients.

    A parameter that got no gradient, because it does not train, has no entry; `held` are all that a rank has.
    """

    loss: Tensor
    norm: Tensor
    gradients: Mapping[str, Tensor]
    coordinates: Mapping[str, int]
    executed: tuple[Any, ...] = ()
    held: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Case:
    """A model with weights that no symmetry hides anything in, a batch, and what one device computes from both."""

    model: Model
    weights: Mapping[str, Tensor]
    batch: Mapping[str, Tensor]
    eager: Result

    def reference(self) -> Result:
        """The build for one device, in float64."""
        return _reference(self.model.name, isinstance(self.model, Small))


def case(model: Model) -> Case:
    """The case of a model, made once per process."""
    return _case(model.name, isinstance(model, Small))


@cache
def _case(name: str, small: bool) -> Case:
    model = Small(name) if small else zoo.MODELS[name]
    torch.manual_seed(0)
    source = model.build().eval()
    with torch.no_grad():
        for p in source.parameters():
            p.add_(torch.randn_like(p) * 0.05)
    batch = model.batch(1)
    weights = {n: t.detach().clone() for n, t in (*source.named_parameters(), *source.named_buffers())}
    loss = model.loss(source(**batch, **model.keywords()))
    loss.backward()
    gradients = {n: p.grad for n, p in source.named_parameters() if p.grad is not None}
    norm = torch.stack([g.norm() for g in gradients.values()]).norm()
    return Case(model, weights, batch, Result(loss.detach(), norm, gradients, {}))


@cache
def _reference(name: str, small: bool) -> Result:
    model = Small(name) if small else zoo.MODELS[name]
    own = case(model)
    return run(compiled(model, "ones"), own.weights, own.batch, torch.float64)[0]


def module_of(build: Build) -> ModuleType:
    """The generated `model.py` as a module."""
    module = ModuleType("generated_model")
    exec(compile(build.files["model.py"], "model.py", "exec"), module.__dict__)
    return module


def run(
    build: Build, weights: Mapping[str, Tensor], batch: Mapping[str, Tensor], dtype: torch.dtype, *, log: bool = False
) -> list[Result]:
    """One forward and backward on every rank, with these weights and this batch."""
    module, plan = module_of(build), build.plan

    def rank(mesh: Mesh) -> Result:
        at = {axis: mesh.coordinate(axis) for axis in plan["mesh"]}
        model = getattr(module, plan["class"])(mesh).to(dtype).eval()
        own = dict(model.named_parameters()) | dict(model.named_buffers())
        with torch.no_grad():
            for name, entry in {**plan["parameters"], **plan["buffers"]}.items():
                if name not in own:  # of a stage of another rank
                    assert plan["pipeline"], name
                    continue
                part = part_of(weights[name], entry["dims"], plan["mesh"], at)
                assert part.shape == own[name].shape, name
                own[name].copy_(part)
        fed = {i["name"]: _fed(batch[i["name"]], i["cut"], plan["mesh"], at) for i in plan["inputs"]}
        data = tuple(a for a in plan["data_axes"] if plan["mesh"][a] > 1)
        if plan["count"]:
            count = model.count(**fed)
            fed["count"] = mesh[data].all_reduce(count) if data else count
        if log:
            mesh.log = []
        with lifted(build.files["model.py"], model):  # what counts in float32 counts in float64 here, as in the source
            loss = _forward_and_backward(build, model, mesh, fed)
        executed = tuple(mesh.log or ())
        norm = gradient_norm(model, mesh)
        loss = loss.detach()
        total = mesh[data].all_reduce(loss) if data else loss
        gradients = {n: g for n in plan["parameters"] if n in own and (g := own[n].grad) is not None}
        return Result(total, norm, gradients, at, executed, frozenset(own))

    return simulate(plan["mesh"], rank, timeout=60)


def _forward_and_backward(build: Build, model: Any, mesh: Mesh, fed: Mapping[str, Tensor]) -> Tensor:
    sums = GradientSums(model, mesh)
    if build.plan["pipeline"] is None:
        loss = model(**fed)
        with sums.last_microbatch():
            loss.backward()
    else:
        from graphpar.runtime.pipeline import Pipeline  # torch's pipelines are slow to import

        plan = plan_of(build.plan)
        pipeline = Pipeline(model, plan, mesh, build.files["schedule.csv"], floats=next(model.parameters()).dtype)
        count = fed.get("count")
        parts = {name: x.chunk(pipeline.microbatches) for name, x in fed.items() if name != "count"}
        batches = [{name: part[i] for name, part in parts.items()} for i in range(pipeline.microbatches)]
        loss = pipeline.step(batches, count)
    sums.finish()
    return loss


def _fed(value: Tensor, cut: Mapping[str, list[str]], mesh: Mapping[str, int], at: Mapping[str, int]) -> Tensor:
    for dim, axes in cut.items():
        value = part_of(value, [[[[s, axes if d == int(dim) else []]]] for d, s in enumerate(value.shape)], mesh, at)
    return value


def part_of(whole: Tensor, dims: list[Any], mesh: Mapping[str, int], at: Mapping[str, int]) -> Tensor:
    """What the rank at these coordinates holds, index by index."""
    for d, segments in enumerate(dims):
        whole = whole[(slice(None),) * d + (_indices(segments, mesh, at, whole, d),)]
    return whole


def _indices(segments: list[Any], mesh: Mapping[str, int], at: Mapping[str, int], whole: Tensor, d: int) -> Tensor:
    found: list[Tensor] = []
    offset = 0
    for factors in segments:
        index = torch.tensor([0])
        for size, axes in factors:
            block, parts = 0, 1
            for axis in axes:
                block, parts = block * mesh[axis] + at[axis], parts * mesh[axis]
            own = torch.arange(block * (size // parts), (block + 1) * (size // parts))
            index = (index[:, None] * size + own).flatten()
        found.append(index + offset)
        offset += torch.tensor([size for size, _ in factors]).prod().item()
    index = torch.cat(found)
    if offset > whole.shape[d]:  # padded: repeats the last index, which no comparison reads
        index = index.clamp(max=whole.shape[d] - 1)
    return index


def differences(build: Build, own: Case) -> dict[str, float]:
    """What differs from one device by more than float64 explains: name -> relative difference, worst rank."""
    reference = own.reference()
    scale = max(float(g.abs().max()) for g in reference.gradients.values())
    found: dict[str, float] = {}

    def note(name: str, difference: float) -> None:
        if not difference <= TOLERANCE:
            found[name] = max(found.get(name, 0), difference)

    for result in run(build, own.weights, own.batch, torch.float64):
        note("loss", abs(float(result.loss / reference.loss) - 1))
        note("norm", abs(float(result.norm / reference.norm) - 1))
        for name, entry in build.plan["parameters"].items():
            if name not in result.held:
                continue
            whole, got = reference.gradients.get(name), result.gradients.get(name)
            if whole is None or got is None:  # not even zeros: an optimizer decays what has a gradient
                assert whole is got, name
                continue
            # a gradient may be zero by mathematics: a key's bias shifts all scores of a query alike
            size = max(float(whole.abs().max()), 1e-3 * scale)
            want = part_of(whole, entry["dims"], build.plan["mesh"], result.coordinates)
            difference = (got - want).abs() / size
            note(name, float(_unpadded(difference, entry, build.plan["mesh"], result.coordinates).max()))
    return found


def _unpadded(value: Tensor, entry: Mapping[str, Any], mesh: Mapping[str, int], at: Mapping[str, int]) -> Tensor:
    """Without the rows past the end of the source's tensor."""
    for d, (segments, size) in enumerate(zip(entry["dims"], entry["shape"], strict=True)):
        if len(segments) == 1 and len(segments[0]) == 1 and segments[0][0][0] > size:
            padded = torch.zeros(segments[0][0][0])
            padded[:size] = 1
            keep = part_of(padded, [segments], mesh, at).bool()
            value = value.movedim(d, 0)[keep].movedim(0, d)
    return value


def same_bits(build: Build, own: Case) -> list[str]:
    """What a build for one device does not compute bit for bit as the source does."""
    (result,) = run(build, own.weights, own.batch, torch.float32)
    ours, theirs = result.gradients, own.eager.gradients
    names = [n for n in {**theirs, **ours} if n not in ours or n not in theirs or not torch.equal(ours[n], theirs[n])]
    return names if torch.equal(result.loss, own.eager.loss) else ["loss", *names]
