"""One axis of the mesh, or a product of several, as seen by one rank."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from graphpar.runtime.blocks import Blocks, cut, join
from graphpar.runtime.comm import Communicator, Handle, Reduction

if TYPE_CHECKING:
    from graphpar.runtime.mesh import Mesh


@dataclass(frozen=True)
class Executed:
    """A collective that ran: shape and bytes are those of the operand as this rank handed it in."""

    phase: str  # forward, backward or step
    kind: str  # all_reduce, all_reduce_max, all_gather, reduce_scatter, all_to_all, broadcast, send or recv
    axis: str  # the names of the mesh axes, outermost first
    shape: tuple[int, ...]
    bytes: int


class Axis:
    """Its methods move data and are unknown to autograd; the pairs in `collectives` are built from them.

    An axis of size 1 hands every tensor back as it is.
    """

    __slots__ = ("comm", "mesh", "name", "names", "rank", "size")

    def __init__(self, mesh: "Mesh", names: tuple[str, ...], comm: Communicator) -> None:
        self.mesh = mesh
        self.names = names  # outermost first
        self.name = " ".join(names)
        self.comm = comm
        self.size = comm.size
        self.rank = comm.rank  # this rank's place along the axis

    def __repr__(self) -> str:
        return f"Axis({self.name or 'none'}, {self.rank} of {self.size})"

    def all_reduce(self, x: Tensor, op: Reduction = "sum") -> Tensor:
        """The sum or maximum over the axis."""
        self._note("all_reduce" if op == "sum" else "all_reduce_max", x)
        return self.comm.all_reduce(x, op)

    def start_all_reduce(self, x: Tensor) -> Handle:
        """Sum x in place, beside whatever this rank does next."""
        self._note("all_reduce", x)
        return self.comm.start_all_reduce(x)

    def all_gather(self, x: Tensor, dim: int, blocks: Blocks = 1) -> Tensor:
        """The parts of all ranks, joined along dim."""
        self._note("all_gather", x)
        return join(self.comm.all_gather(x), self.size, dim, blocks)

    def reduce_scatter(self, x: Tensor, dim: int, blocks: Blocks = 1) -> Tensor:
        """This rank's part, along dim, of the sum over the axis."""
        self._note("reduce_scatter", x)
        return self.comm.reduce_scatter(cut(x, self.size, dim, blocks))

    def all_to_all(
        self, x: Tensor, split_dim: int, concat_dim: int, split_blocks: Blocks = 1, concat_blocks: Blocks = 1
    ) -> Tensor:
        """Cut x along split_dim, give each rank its part, and join what comes along concat_dim."""
        self._note("all_to_all", x)
        parts = self.comm.all_to_all(cut(x, self.size, split_dim, split_blocks))
        return join(parts, self.size, concat_dim, concat_blocks)

    def all_to_all_rows(self, x: Tensor, send: list[int], receive: list[int]) -> Tensor:
        """Give `send[i]` rows of x to rank i and get `receive[i]` rows from it."""
        self._note("all_to_all", x)
        return self.comm.all_to_all_rows(x, send, receive)

    def broadcast(self, x: Tensor, source: int = 0) -> Tensor:
        """The tensor of rank `source` of this axis."""
        self._note("broadcast", x)
        return self.comm.broadcast(x, source)

    def send(self, x: Tensor, to: int) -> Handle:
        """Start to send x, contiguous, to rank `to` of this axis."""
        self._note("send", x)
        return self.comm.send(x, to)

    def receive(self, x: Tensor, source: int) -> Handle:
        """Start to fill x, contiguous, with what rank `source` of this axis sends."""
        self._note("recv", x)
        return self.comm.receive(x, source)

    def barrier(self) -> None:
        """Return when every rank of the axis is here."""
        self.comm.barrier()

    def _note(self, kind: str, x: Tensor) -> None:
        if x.requires_grad and torch.is_grad_enabled():
            raise RuntimeError(f"{kind} over {self.name} would lose the gradient; use graphpar.runtime.{kind}")
        log = self.mesh.log
        if log is not None and self.size > 1:
            log.append(Executed(self._phase(), kind, self.name, tuple(x.shape), x.nbytes))

    def _phase(self) -> str:
        if self.mesh.phase is not None:
            return self.mesh.phase
        # Whatever runs while autograd walks the graph is backward, also a forward that is computed again.
        running = torch._C._current_graph_task_id()  # pyright: ignore[reportPrivateUsage]
        return "forward" if running == -1 else "backward"
