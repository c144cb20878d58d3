"""How many elements dispatch and combine move between ranks, as executed and as the choices of experts imply."""

from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

from graphpar.runtime import Mesh
from graphpar.runtime.comm import GlooGroup
from tools.bench.builds import build_folder, read_build
from tools.bench.contenders import SEED, Batch
from tools.bench.mixtures import CLASS, reference
from tools.bench.moe import Mixture, MixtureSizes


class Noting(GlooGroup):
    """Also notes how many rows it gave to each rank: the mesh logs what is handed in, the rows that stay as well."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        super().__init__(group)
        self.sent: list[list[int]] = []

    def all_to_all_rows(self, x: Tensor, send: Sequence[int], receive: Sequence[int]) -> Tensor:
        """Like that of any group."""
        self.sent.append(list(send))
        return super().all_to_all_rows(x, send, receive)


def check_moved(root: Path, sizes: MixtureSizes, batch: Batch, ranks: int) -> dict[str, int]:
    """The elements that leave their ranks in one forward, over all ranks, for choices by chance and by position.

    Raises AssertionError unless they are those that the choices imply; and, for choices by position, which give each
    expert as many rows of each rank, unless that is 2 x tokens x k x d_model x (n - 1) / n.
    """
    model = reference(sizes)
    by_chance = executed(root, sizes, batch, ranks)
    assert by_chance == implied(model, sizes, batch, ranks), f"choices by chance: {by_chance}"
    choose_by_position(model, sizes)
    by_position = executed(root, sizes, batch, ranks, by_position=True)
    closed = 2 * batch.ids.numel() * sizes.topk * sizes.width * (ranks - 1) // ranks
    assert by_position == implied(model, sizes, batch, ranks) == closed, f"choices by position: {by_position}"
    return {"by chance": by_chance, "by position": by_position}


def executed(root: Path, sizes: MixtureSizes, batch: Batch, ranks: int, *, by_position: bool = False) -> int:
    """What the generated program moved."""
    world = dist.group.WORLD
    assert world is not None
    group = Noting(world)
    mesh = Mesh({"ep": ranks}, dist.get_rank(), torch.device("cpu"), lambda names, lines: group)
    model, _ = read_build(build_folder(root, "ep", sizes.width), mesh, SEED, CLASS)
    if by_position:
        choose_by_position(model, sizes)
    mine = batch.mine()
    mesh.log = log = []
    with torch.no_grad():
        model(ids=mine.ids, labels=mine.labels, count=torch.tensor(batch.labels.numel()))
    rows = [ran.shape for ran in log if (ran.phase, ran.kind) == ("forward", "all_to_all") and len(ran.shape) == 2]
    assert len(rows) == 2, f"not one exchange of rows each way: {log}"
    moved = 0
    for (count, width), sent in zip(rows, group.sent, strict=True):
        assert count == sum(sent), f"{count} rows handed in, {sum(sent)} sent"
        moved += (count - sent[group.rank]) * width
    total = torch.tensor(moved)
    dist.all_reduce(total)
    return int(total)


def implied(model: Mixture, sizes: MixtureSizes, batch: Batch, ranks: int) -> int:
    """Of every choice of an expert on another rank than the token's, a row there and a row back."""
    with torch.no_grad():
        x = model.tokens(batch.ids) + model.positions(torch.arange(batch.ids.shape[1]))
        chosen = model.moe.router(x).softmax(-1).topk(sizes.topk, dim=-1).indices
    rank_of_row = torch.arange(len(batch.ids)) * ranks // len(batch.ids)
    elsewhere = chosen * ranks // sizes.experts != rank_of_row.view(-1, 1, 1)
    return 2 * int(elsewhere.sum()) * sizes.width


@torch.no_grad()
def choose_by_position(model: nn.Module, sizes: MixtureSizes) -> None:
    """Make token i of each sequence choose the experts i, i + 1, .. + k - 1, counted round and round."""
    ahead = (torch.arange(sizes.experts) - torch.arange(sizes.length).view(-1, 1)) % sizes.experts
    scores = nn.functional.pad((sizes.topk - ahead).clamp_min(0).float(), (0, sizes.width - sizes.experts))
    model.get_parameter("tokens.weight").zero_()
    model.get_parameter("positions.weight").copy_(scores)
    model.get_parameter("moe.router.weight").copy_(torch.eye(sizes.experts, sizes.width))
