"""
A decoder whose feed-forward layers are experts, dispatched by one-hot einsums with a capacity for each group.

The groups are the sequences of the batch. The first choices of all tokens of a group come before the second ones, and
what exceeds an expert's capacity passes by. After GShard (Lepikhin et al., 2020) and Mesh-TensorFlow.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn


class Top2Experts(nn.Module):
    def __init__(self, d_model, d_hidden, num_experts, capacity_factor):
        super().__init__()
        self.num_experts = num_experts
        self.capacity_factor = capacity_factor
        self.gate = nn.Linear(d_model, num_experts, bias=False)
        self.wi = nn.Parameter(torch.randn(num_experts, d_model, d_hidden) / math.sqrt(d_model))
        self.wo = nn.Parameter(torch.randn(num_experts, d_hidden, d_model) / math.sqrt(d_hidden))

    def route(self, x):
        """combine: [group, token, expert, capacity], and the loss that keeps experts balanced"""
        tokens, experts = x.shape[1], self.num_experts
        capacity = max(4, math.ceil(tokens * self.capacity_factor / experts))
        gates = self.gate(x).softmax(dim=-1)

        first = gates.argmax(dim=-1)
        mask1 = F.one_hot(first, experts).to(x.dtype)
        second = gates.masked_fill(mask1.bool(), 0.0).argmax(dim=-1)
        mask2 = F.one_hot(second, experts).to(x.dtype)
        aux = (mask1.mean(dim=1) * gates.mean(dim=1)).mean() * experts * experts

        place1 = mask1.cumsum(dim=1) * mask1 - mask1
        mask1 = mask1 * (place1 < capacity)
        used = mask1.sum(dim=1, keepdim=True)
        place2 = (mask2.cumsum(dim=1) - mask2 + used) * mask2
        mask2 = mask2 * (place2 < capacity)

        gate1, gate2 = (gates * mask1).sum(dim=-1), (gates * mask2).sum(dim=-1)
        total = (gate1 + gate2).clamp(min=1e-9)
        slots = torch.arange(capacity, device=x.device)
        parts = []
        for gate, mask, place in ((gate1, mask1, place1), (gate2, mask2, place2)):
            slot = (place.sum(dim=-1, keepdim=True) == slots).to(x.dtype)
            parts.append(torch.einsum("gs,gse,gsc->gsec", gate / total, mask, slot))
        return parts[0] + parts[1], aux

    def forward(self, x):
        combine, aux = self.route(x)
        dispatch = (combine > 0).to(x.dtype)
        sent = torch.einsum("gsec,gsm->egcm", dispatch, x)
        hidden = F.relu(torch.einsum("egcm,emh->egch", sent, self.wi))
        done = torch.einsum("egch,ehm->egcm", hidden, self.wo)
        return torch.einsum("gsec,egcm->gsm", combine, done), aux


class Layer(nn.Module):
    def __init__(self, d_model, heads, d_hidden, num_experts, capacity_factor):
        super().__init__()
        self.heads = heads
        self.norm_a, self.norm_b = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model, bias=False) for _ in range(4))
        self.experts = Top2Experts(d_model, d_hidden, num_experts, capacity_factor)

    def attend(self, x):
        q, k, v = (f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        return self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))

    def forward(self, x):
        x = x + self.attend(self.norm_a(x))
        y, aux = self.experts(self.norm_b(x))
        return x + y, aux


class GShard(nn.Module):
    def __init__(self, vocab=90, d_model=40, heads=4, d_hidden=56, num_experts=4, layers=2, capacity_factor=2.0):
        super().__init__()
        self.embed = nn.Embedding(vocab, d_model)
        self.layers = nn.ModuleList(
            Layer(d_model, heads, d_hidden, num_experts, capacity_factor) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(d_model)
        self.aux_weight = 0.01

    def forward(self, input_ids, labels):
        x, total = self.embed(input_ids), 0.0
        for layer in self.layers:
            x, aux = layer(x)
            total = total + aux
        logits = self.norm(x) @ self.embed.weight.T
        loss = F.cross_entropy(logits.transpose(1, 2), labels)
        return loss + self.aux_weight * total


def small():
    return GShard()
