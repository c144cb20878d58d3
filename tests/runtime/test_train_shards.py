"""Cutting a tensor into the parts of all ranks and joining them gives the tensor back."""

from math import prod

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from graphpar.runtime.shards import Dims, Place, cut, join, local_shape, mesh_axes, padded_shape, read_dims

SIZES = {"dp": 2, "cp": 2, "tp": 3}


def parts(full: Tensor, dims: Dims, sizes: dict[str, int]) -> list[tuple[Place, Tensor]]:
    places = [Place.of(sizes, rank) for rank in range(prod(sizes.values()))]
    return [(place, cut(full, dims, place)) for place in places]


@st.composite
def described_tensors(draw: st.DrawFn) -> tuple[Tensor, Dims]:
    """A tensor of one to three dims, each a sum of products; every mesh axis cuts at most one factor per segment."""
    free = list(SIZES)
    described: list[list[list[tuple[int, tuple[str, ...]]]]] = []
    shape: list[int] = []
    for _ in range(draw(st.integers(1, 3))):
        usable = [axis for axis in free if draw(st.booleans())]
        free = [axis for axis in free if axis not in usable]
        dim: list[list[tuple[int, tuple[str, ...]]]] = []
        for _ in range(draw(st.integers(1, 3))):
            segment: list[tuple[int, tuple[str, ...]]] = []
            left = list(usable)
            for _ in range(draw(st.integers(1, 3))):
                axes = tuple(left[: draw(st.integers(0, len(left)))])
                left = left[len(axes) :]
                size = draw(st.integers(1, 3)) * prod(SIZES[axis] for axis in axes)
                segment.append((size, axes))
            dim.append(segment)
        full = sum(prod(size for size, _ in segment) for segment in dim)
        shape.append(full - draw(st.integers(0, min(2, full - 1))))  # the rest is padding
        described.append(dim)
    dims = read_dims(described)
    return torch.arange(1, prod(shape) + 1).reshape(shape), dims


@given(described_tensors())
@settings(max_examples=80, deadline=None)
def test_join_undoes_cut(drawn: tuple[Tensor, Dims]) -> None:
    full, dims = drawn
    found = parts(full, dims, SIZES)
    assert torch.equal(join(iter(found), full.shape, dims), full)
    for place, local in found:
        assert tuple(local.shape) == local_shape(dims, place)
    holders = prod(SIZES[axis] for axis in mesh_axes(dims))
    if full.shape == padded_shape(dims) and mesh_axes_cut_everything(dims):
        assert sum(local.numel() for _, local in found) * holders == full.numel() * prod(SIZES.values())


def mesh_axes_cut_everything(dims: Dims) -> bool:
    """Whether each segment is cut by every axis that its dim uses, so that no element is held twice."""
    return all(set(mesh_axes(((segment,),))) == set(mesh_axes((dim,))) for dim in dims for segment in dim)


def test_packed_heads_are_cut_inside_each_of_q_k_v() -> None:
    full = torch.arange(24).reshape(2, 12)  # d_model (3 heads d_head), heads 2, d_head 2
    dims = read_dims([[[[2, []]]], [[[3, []], [2, ["tp"]], [2, []]]]])
    second = cut(full, dims, Place.of({"tp": 2}, 1))
    assert second.tolist() == [[2, 3, 6, 7, 10, 11], [14, 15, 18, 19, 22, 23]]


def test_unequal_segments_are_cut_each_for_itself() -> None:
    full = torch.arange(8)  # (4 heads + 2 kv + 2 kv)
    dims = read_dims([[[[4, ["tp"]]], [[2, ["tp"]]], [[2, ["tp"]]]]])
    assert cut(full, dims, Place.of({"tp": 2}, 1)).tolist() == [2, 3, 5, 7]


def test_padding_is_zeros_at_the_end_of_the_last_rank() -> None:
    full = torch.full((5,), 7)
    dims = read_dims([[[[6, ["tp"]]]]])
    assert cut(full, dims, Place.of({"tp": 2}, 1)).tolist() == [7, 7, 0]


def test_the_outermost_axis_of_a_factor_moves_slowest() -> None:
    dims = read_dims([[[[4, ["tp", "dp"]]]]])
    held = [cut(torch.arange(4), dims, Place.of({"dp": 2, "tp": 2}, rank)).item() for rank in range(4)]
    assert held == [0, 2, 1, 3]


def test_a_scalar_is_whole_everywhere() -> None:
    assert cut(torch.tensor(3.0), (), Place.of({"tp": 2}, 1)).item() == 3.0


def test_a_factor_that_does_not_divide_is_refused_with_numbers() -> None:
    with pytest.raises(ValueError, match="a factor of 3 does not divide by tp = 2"):
        cut(torch.arange(3), read_dims([[[[3, ["tp"]]]]]), Place.of({"tp": 2}, 0))
