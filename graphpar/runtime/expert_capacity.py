"""Experts with a limit: how many rows one takes of a group of tokens, and which."""

import torch
from torch import Tensor


def capacity(group: int, experts: int, factor: float, least: int = 4) -> int:
    """How many rows an expert takes of a group of that many tokens: Mesh-TensorFlow's formula.

    `factor` covers all choices of a token, so that 2.0 leaves room for two each if the experts are chosen equally.
    """
    return max(least, min(group, int(group * factor / experts)))


def kept(chosen: Tensor, *, experts: int, capacity: int, group: int | None = None) -> Tensor:
    """chosen [*groups, *tokens, topk], ids of experts -> bool of that shape: the slots that their experts take.

    In each group an expert takes the first `capacity` slots that chose it, in the order of Mesh-TensorFlow and GShard:
    the first choices of all tokens, token by token, then all second choices, and so on.
    `group` is the number of leading dimensions that number the groups; None makes all tokens one group.
    """
    groups = chosen.shape[: group or 0].numel()
    by_choice = chosen.detach().reshape(groups, -1, chosen.shape[-1]).transpose(1, 2)  # [groups, topk, tokens]
    offset = torch.arange(groups, device=chosen.device).view(-1, 1, 1) * experts
    expert, order = (by_choice + offset).flatten().sort(stable=True)  # a group's expert has a number of its own
    earlier = torch.arange(len(expert), device=chosen.device) - torch.searchsorted(expert, expert)
    mask = torch.empty_like(order, dtype=torch.bool).scatter_(0, order, earlier < capacity)
    return mask.view(by_choice.shape).transpose(1, 2).reshape(chosen.shape)
