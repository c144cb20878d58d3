"""The model of a pipeline: the stages that this rank runs, under the names of the source."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from torch import Tensor, nn

from graphpar.runtime.mesh import Mesh

Make = Callable[[], nn.Module]


class Stages(nn.Module):
    """Makes and holds the stages of this rank; `Pipeline` runs them.

    Parameters and buffers have the names of the source, whichever stage holds them. What several stages of this rank
    hold is one tensor. What stages of several ranks hold is in `shared`, with the coordinates of these ranks.
    """

    def __init__(
        self,
        mesh: Mesh,
        axis: str,
        stages: Sequence[tuple[int, Make]],
        shared: Mapping[str, tuple[int, ...]] | None = None,
    ) -> None:
        """`stages`: the coordinate along `axis` of each stage's rank, and how the stage is made there."""
        super().__init__()
        self.mesh = mesh
        self.axis = mesh[axis]
        self.homes = tuple(coordinate for coordinate, _ in stages)
        self.shared = dict(shared or {})
        mine = [index for index, coordinate in enumerate(self.homes) if coordinate == self.axis.rank]
        self.held: dict[int, nn.Module] = {index: stages[index][1]() for index in mine}
        for index, stage in self.held.items():
            self.add_module(f"stage {index}", stage)
        _tie(self.held.values())

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """A rank has a part of the model only: raises RuntimeError."""
        raise RuntimeError("a model with a pipeline is run by graphpar.runtime.pipeline.Pipeline: its `step`")

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Parameter]]:
        """The parameters of this rank's stages by the names of the source."""
        return _named(stage.named_parameters(prefix, recurse, remove_duplicate) for stage in self.held.values())

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """The buffers of this rank's stages by the names of the source."""
        return _named(stage.named_buffers(prefix, recurse, remove_duplicate) for stage in self.held.values())

    def state_dict(self, *, prefix: str = "", keep_vars: bool = False) -> dict[str, Any]:
        """What this rank holds of the source's state_dict."""
        return {
            name: value
            for stage in self.held.values()
            for name, value in stage.state_dict(prefix=prefix, keep_vars=keep_vars).items()
        }

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Take this rank's part from a state_dict of the source; what other ranks hold may be there or not.

        Raises RuntimeError, as torch does, for what is missing.
        """
        if assign:
            raise ValueError("to assign would part tensors that stages share")
        for stage in self.held.values():
            wanted = stage.state_dict()
            stage.load_state_dict({name: value for name, value in state_dict.items() if name in wanted}, strict)


def _tie(stages: Iterator[nn.Module] | Any) -> None:
    """Let stages hold the same tensors where they have the same names."""
    first: dict[str, Tensor] = {}
    for stage in stages:
        tensors = chain(stage.named_parameters(remove_duplicate=False), stage.named_buffers(remove_duplicate=False))
        for name, tensor in list(tensors):
            if first.setdefault(name, tensor) is not tensor:
                module, _, leaf = name.rpartition(".")
                setattr(stage.get_submodule(module), leaf, first[name])


def _named(parts: Iterator[Iterator[tuple[str, Any]]] | Any) -> Iterator[tuple[str, Any]]:
    """Each name once: stages that share it hold the same tensor."""
    seen: set[str] = set()
    for name, tensor in chain.from_iterable(parts):
        if name not in seen:
            seen.add(name)
            yield name, tensor
