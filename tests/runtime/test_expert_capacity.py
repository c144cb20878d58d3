"""An expert with a limit takes first choices before second ones, and tokens in their order."""

import pytest
import torch

from graphpar.runtime import capacity, kept


def slowly(chosen, limit):
    """chosen [tokens][topk], one group."""
    taken, mask = {}, torch.zeros(chosen.shape, dtype=torch.bool)
    for slot in range(chosen.shape[1]):
        for token in range(chosen.shape[0]):
            expert = int(chosen[token, slot])
            mask[token, slot] = taken.get(expert, 0) < limit
            taken[expert] = taken.get(expert, 0) + 1
    return mask


@pytest.mark.parametrize("factor", [0.5, 1.0, 1.25, 2.0])
@pytest.mark.parametrize("topk", [1, 2, 3])
def test_experts_take_what_a_loop_would_give_them(factor, topk):
    chosen = torch.rand(3, 4, 10, 6, generator=torch.Generator().manual_seed(3)).topk(topk).indices
    limit = capacity(40, 6, factor)
    mask = kept(chosen, experts=6, capacity=limit, group=1)
    assert torch.equal(mask, torch.stack([slowly(one.flatten(0, 1), limit).view(4, 10, topk) for one in chosen]))
    limit = capacity(10, 6, factor, least=1)
    mask = kept(chosen, experts=6, capacity=limit, group=2)
    assert torch.equal(mask.flatten(0, 1), torch.stack([slowly(one, limit) for one in chosen.flatten(0, 1)]))
    limit = capacity(120, 6, factor)
    assert torch.equal(kept(chosen, experts=6, capacity=limit).flatten(0, 2), slowly(chosen.flatten(0, 2), limit))


def test_first_choices_come_before_second_ones():
    chosen = torch.tensor([[0, 1], [1, 0], [0, 2]])
    assert kept(chosen, experts=3, capacity=1).tolist() == [[True, False], [True, False], [False, True]]


def test_no_tokens_are_no_mistake():
    assert kept(torch.zeros(0, 2, dtype=torch.int64), experts=3, capacity=1).shape == (0, 2)


def test_capacity_is_the_share_of_an_expert_within_limits():
    assert capacity(1024, 8, 2.0) == 256
    assert capacity(1024, 8, 1.25) == 160
    assert capacity(10, 8, 1.25) == 4  # at least
    assert capacity(10, 8, 1.25, least=0) == 1
    assert capacity(10, 2, 8.0) == 10  # at most the group
