"""The mesh of ranks: named axes, the groups along them, and what a rank makes its parameters with."""

import os
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.utils.checkpoint import checkpoint

from graphpar.runtime.axis import Axis, Executed
from graphpar.runtime.comm import Alone, Communicator, GlooGroup, Group
from graphpar.runtime.grid import coordinates, count, groups, spelled
from graphpar.runtime.parameters import unset
from graphpar.runtime.random import Randomness, Rng, Stream

# Given axes and the groups along them, in the order that all ranks agree on, join the one that this rank is in, if any.
Connect = Callable[[tuple[str, ...], list[tuple[int, ...]]], Communicator | None]


class MeshError(ValueError):
    """The mesh does not fit the ranks, or has no such axis."""


class Mesh:
    """This rank's view of the mesh: `mesh["tp"]`, and `mesh["dp", "tp"]` for a product, outermost first.

    The groups of single axes exist from the start. Those of a product are made when it is first asked for, which
    all ranks of the mesh must do, in the same order; the generated program does.
    """

    def __init__(
        self,
        sizes: Mapping[str, int],
        rank: int,
        device: torch.device,
        connect: Connect,
        *,
        rng: Rng = "statistical",
        lock: AbstractContextManager[Any] | None = None,
    ) -> None:
        self.sizes = dict(sizes)  # outermost first; ranks count through the last axis fastest
        self.rank = rank
        self.device = device
        self.coordinates = coordinates(sizes, rank)
        self.log: list[Executed] | None = None  # set a list to record what runs
        self.phase: str | None = None
        self.randomness = Randomness(self.coordinates, device, rng, nullcontext() if lock is None else lock)
        self._connect = connect
        self._axes: dict[tuple[str, ...], Axis] = {}
        self._some: dict[tuple[str, tuple[int, ...]], Axis | None] = {}
        for name in self.sizes:
            self.axis((name,))

    @classmethod
    def from_env(cls, sizes: Mapping[str, int], *, timeout: float = 600, rng: Rng = "statistical") -> "Mesh":
        """The mesh of a program under torchrun: NCCL where there are GPUs, Gloo elsewhere; timeout in seconds.

        Raises MeshError, on every rank and before anyone waits for anyone, if the mesh does not fit.
        """
        rank, device = _started(sizes)
        limit = timedelta(seconds=timeout)
        if device.type == "cuda":
            torch.cuda.set_device(device)
            dist.init_process_group("cpu:gloo,cuda:nccl", timeout=limit, device_id=device, **_meeting_place())
        else:
            dist.init_process_group("gloo", timeout=limit, **_meeting_place())
        kind = Group if device.type == "cuda" else GlooGroup

        def connect(names: tuple[str, ...], every: list[tuple[int, ...]]) -> Communicator | None:
            mine = _process_group(names, every, rank, limit)
            return None if mine is None else kind(mine)

        return cls(sizes, rank, device, connect, rng=rng)

    def __getitem__(self, names: str | tuple[str, ...]) -> Axis:
        return self.axis((names,) if isinstance(names, str) else names)

    def __repr__(self) -> str:
        return f"Mesh({spelled(self.sizes)}, rank {self.rank})"

    def axis(self, names: tuple[str, ...]) -> Axis:
        """One axis, or a product; axes of size 1 drop out of a product.

        Raises MeshError for a name that the mesh does not have.
        """
        if names in self._axes:
            return self._axes[names]
        self._check(names)
        wide = tuple(name for name in names if self.sizes[name] > 1)
        if not wide:
            axis = Axis(self, names, Alone())
        elif wide == names:
            comm = self._connect(names, groups(self.sizes, names))
            assert comm is not None  # every rank is somewhere along every axis
            axis = Axis(self, names, comm)
        else:
            axis = self.axis(wide)
        self._axes[names] = axis
        return axis

    def some(self, name: str, coordinates: tuple[int, ...]) -> Axis | None:
        """The ranks at these coordinates of one axis, as an axis of their own; None on a rank elsewhere.

        Like products, made when first asked for, by all ranks of the mesh in the same order.
        """
        self._check((name,))
        if coordinates == tuple(range(self.sizes[name])):
            return self.axis((name,))
        key = name, coordinates
        if key not in self._some:
            comm: Communicator | None = Alone()
            if len(coordinates) > 1:
                lines = groups(self.sizes, (name,))
                comm = self._connect((name,), [tuple(line[at] for at in coordinates) for line in lines])
            here = self.coordinates[name] in coordinates
            self._some[key] = Axis(self, (name,), comm) if here and comm is not None else None
        return self._some[key]

    @property
    def world(self) -> Axis:
        """All ranks."""
        return self.axis(tuple(self.sizes))

    def coordinate(self, *names: str) -> int:
        """This rank's index along the product of the axes, outermost first."""
        self._check(names)
        index = 0
        for name in names:
            index = index * self.sizes[name] + self.coordinates[name]
        return index

    def _check(self, names: tuple[str, ...]) -> None:
        unknown = [name for name in names if name not in self.sizes]
        if unknown or len(set(names)) < len(names):
            what = f"no axis {unknown[0]!r}" if unknown else f"each axis once, not {' '.join(names)!r}"
            raise MeshError(f"mesh {spelled(self.sizes)} has {what}")

    # What a rank holds

    def parameter(
        self,
        *shape: int,
        grad_sum: str = "",
        sharded: str = "",
        dtype: torch.dtype | None = None,
        trainable: bool = True,
    ) -> nn.Parameter:
        """This rank's part of a parameter, all NaN until it is loaded.

        `grad_sum` names the axes over which its gradient is still a summand after backward, `sharded` those along
        which the ranks hold different parts.
        """
        dtype = torch.get_default_dtype() if dtype is None else dtype
        parameter = nn.Parameter(unset(shape, dtype, self.device), requires_grad=trainable)
        for attribute, names in (("grad_sum", grad_sum), ("shard_axes", sharded)):
            axes = tuple(names.split())
            self._check(axes)
            setattr(parameter, attribute, axes)
        return parameter

    def buffer(self, *shape: int, dtype: torch.dtype | None = None, persistent: bool = True) -> Tensor:
        """This rank's part of a buffer; it shows that it was not filled, as a parameter does."""
        buffer = unset(shape, torch.get_default_dtype() if dtype is None else dtype, self.device)
        buffer.persistent = persistent  # pyright: ignore[reportAttributeAccessIssue]  (read by Parameters)
        return buffer

    # Randomness

    @property
    def rng(self) -> Rng:
        """Whether random numbers are statistical or exact."""
        return self.randomness.rng

    @rng.setter
    def rng(self, rng: Rng) -> None:
        self.randomness.rng = rng

    def random(self, *names: str) -> Stream:
        """The random numbers for a value that is sharded along `names`: equal on ranks that differ along others."""
        self._check(names)
        return self.randomness.stream(tuple(name for name in self.sizes if name in names and self.sizes[name] > 1))

    def seed(self, seed: int, step: int = 0, microbatch: int = 0, stage: int = 0) -> None:
        """Set all random numbers; equal arguments give equal numbers, in a resumed run as well."""
        self.randomness.seed(seed, step, microbatch, stage)

    def replay(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        """For `checkpoint(..., context_fn=mesh.replay, preserve_rng_state=False)`: both runs draw the same."""
        return self.randomness.replay()

    def recompute(self, run: Callable[..., Any], *values: Tensor) -> Any:
        """What `run` makes of the values, to be made again in the backward pass: until then, only they are kept.

        Random numbers are the same both times, and all of `run` is done again, its last collectives too: what is
        communicated does not depend on which of its results a backward needs.
        """
        return checkpoint(
            run, *values, use_reentrant=False, context_fn=self.replay, preserve_rng_state=False, early_stop=False
        )

    # The rest

    @contextmanager
    def during(self, phase: str) -> Generator[None]:
        """Record collectives under this phase, whether forward or backward runs."""
        before, self.phase = self.phase, phase
        try:
            yield
        finally:
            self.phase = before

    def device_mesh(self) -> DeviceMesh:
        """The same mesh for libraries that want torch's; only under torchrun, and all ranks must ask at once."""
        sizes = tuple(self.sizes.values())
        return init_device_mesh(self.device.type, sizes, mesh_dim_names=tuple(self.sizes))

    def close(self) -> None:
        """Take the process groups down; a no-op where there are none."""
        if dist.is_initialized():
            dist.destroy_process_group()


def _started(sizes: Mapping[str, int]) -> tuple[int, torch.device]:
    """The rank and device that torchrun gave this process."""
    launch = f"torchrun --nproc-per-node {count(sizes)}"
    if not {"RANK", "WORLD_SIZE", "LOCAL_RANK"} <= os.environ.keys():
        raise MeshError(f"this program runs under torchrun: {launch} BUILD/train.py")
    world, local = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_RANK"])
    if world != count(sizes):
        have = f"mesh {spelled(sizes)} has {count(sizes)} ranks but torchrun started {world}"
        raise MeshError(f"{have}; use {launch}")
    if not torch.cuda.is_available():
        return int(os.environ["RANK"]), torch.device("cpu")
    gpus = torch.cuda.device_count()
    if local >= gpus:
        here = os.environ.get("LOCAL_WORLD_SIZE", str(local + 1))
        raise MeshError(
            f"torchrun started {here} ranks on a machine with {gpus} GPUs; use --nproc-per-node {gpus}, "
            f"or hide the GPUs with CUDA_VISIBLE_DEVICES= to run on its CPUs"
        )
    return int(os.environ["RANK"]), torch.device("cuda", local)


def _meeting_place() -> dict[str, Any]:
    """Where a restarted job meets; nothing special on its first start.

    torchrun keeps its store over a restart, and the addresses of the processes that ended are still in it.
    """
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    if attempt == "0" or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return {}
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    return {"store": dist.PrefixStore(f"restart {attempt}", store), "rank": rank, "world_size": world}


def _process_group(
    names: tuple[str, ...], every: list[tuple[int, ...]], rank: int, timeout: timedelta
) -> dist.ProcessGroup | None:
    """Make all these groups, as every rank must, and return the one that holds this rank, if any."""
    world = dist.group.WORLD
    assert world is not None
    if every == [tuple(range(world.size()))]:
        return world
    mine = None
    for ranks in every:
        group = dist.new_group(list(ranks), timeout=timeout, sort_ranks=False, group_desc=" ".join(names))
        if rank in ranks:
            mine = group
    assert mine is None or isinstance(mine, dist.ProcessGroup)
    return mine
