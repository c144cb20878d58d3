"""Cutting and joining dimensions."""

import pytest
import torch

from graphpar.runtime.blocks import cut, join, pad, take

CASES = [
    ((6, 5), 0, 1),
    ((4, 6, 5), 1, 1),
    ((1, 6, 5), 1, 1),
    ((4, 6), -1, 1),
    ((12, 3), 0, 3),
    ((2, 12), -1, 3),
    ((2, 12, 2), 1, (3, 1, 2)),
    ((12,), 0, (4, 2)),
    ((0, 4), 0, 1),
    ((4, 0), 0, 1),
]


def whole(shape):
    size = torch.Size(shape).numel()
    return torch.arange(size, dtype=torch.float64).view(shape)


@pytest.mark.parametrize(("shape", "dim", "blocks"), CASES)
def test_join_undoes_cut(shape, dim, blocks):
    x = whole(shape)
    parts = cut(x, 2, dim, blocks)
    assert parts.is_contiguous()
    assert torch.equal(join(parts, 2, dim, blocks), x)


@pytest.mark.parametrize(("shape", "dim", "blocks"), CASES)
def test_take_is_one_part_of_cut_and_pads_to_the_whole(shape, dim, blocks):
    x = whole(shape)
    parts = cut(x, 2, dim, blocks)
    for i in range(2):
        assert torch.equal(take(x, 2, i, dim, blocks), parts.tensor_split(2)[i])
    assert torch.equal(sum(pad(part, 2, i, dim, blocks) for i, part in enumerate(parts.tensor_split(2))), x)


def test_parts_that_lie_in_order_are_not_copied():
    for shape, dim in [((6, 5), 0), ((1, 6, 5), 1)]:
        x = whole(shape)
        parts = cut(x, 2, dim)
        assert join(parts, 2, dim).data_ptr() == parts.data_ptr() == x.data_ptr()


def test_blocks_cut_each_of_q_k_and_v():
    qkv = torch.tensor([0, 1, 10, 11, 20, 21])
    assert take(qkv, 2, 1, 0, 3).tolist() == [1, 11, 21]
    assert take(qkv, 2, 1, 0, 1).tolist() == [11, 20, 21]


def test_segments_of_different_sizes_are_each_cut():
    gqa = torch.tensor([0, 1, 2, 3, 10, 11, 20, 21])  # four query heads, two of keys, two of values
    assert take(gqa, 2, 0, 0, (2, 1, 1)).tolist() == [0, 1, 10, 20]
    assert take(gqa, 2, 1, 0, (2, 1, 1)).tolist() == [2, 3, 11, 21]


@pytest.mark.parametrize("blocks", [1, 2])
def test_a_dimension_that_does_not_divide_is_an_error(blocks):
    with pytest.raises(ValueError, match=r"dimension 1 of \[2, 6\] cannot be cut evenly into .*4 ranks"):
        cut(torch.zeros(2, 6), 4, 1, blocks)
    with pytest.raises(ValueError, match="cannot be cut evenly"):
        take(torch.zeros(2, 6), 4, 0, 1, blocks)


def test_segments_that_do_not_add_up_are_an_error():
    with pytest.raises(ValueError, match=r"dimension 0 of \[7\] is not 4 \+ 2"):
        take(torch.zeros(7), 2, 0, 0, (2, 1))
