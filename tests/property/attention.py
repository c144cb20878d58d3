"""Causal attention: projections, positions, grouped keys and the product itself, in many spellings."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from around import Around
from choices import LONGEST, Choices
from norms import norm
from positions import Rotary, slopes
from torch import Tensor, nn


class Attention(nn.Module):
    """(batch, seq, width) -> (batch, seq, width)."""

    def __init__(self, c: Choices, window: int | None = None) -> None:
        super().__init__()
        self.c, self.window = c, window
        wide, narrow = c.heads * c.size, c.kv_heads * c.size
        match c.qkv:
            case "separate":
                sizes = (wide, narrow, c.kv_heads * c.values)
                self.q, self.k, self.v = (nn.Linear(c.width, n, bias=c.bias) for n in sizes)
            case "q and kv":
                self.q, self.kv = nn.Linear(c.width, wide, bias=c.bias), nn.Linear(c.width, 2 * narrow, bias=c.bias)
            case "einsum":
                self.w = nn.ParameterList(
                    [nn.Parameter(torch.zeros(c.heads, c.width, n)) for n in (c.size, c.size, c.values)]
                )
            case _:
                self.qkv = nn.Linear(c.width, wide + 2 * narrow, bias=c.bias)
        if c.qk_norm:
            self.q_norm, self.k_norm = norm(c.norm, c.size), norm(c.norm, c.size)
        if c.positions.startswith("rotary"):
            self.rotary = Rotary(c)
        if c.positions == "alibi":
            self.register_buffer("slopes", slopes(c.heads), persistent=False)
        if c.mask == "tril buffer" and c.attention != "causal":
            ones = torch.ones(LONGEST, LONGEST).tril()
            self.register_buffer("mask", ones.view(1, 1, LONGEST, LONGEST), persistent=False)
        self.around = Around(c)
        self.o = nn.Linear(c.heads * c.values, c.width, bias=c.bias)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.projected(x)
        if self.c.about == "unit length":
            q, k = (t * torch.rsqrt(t.square().sum(-1, keepdim=True) + 1e-6) for t in (q, k))
        if self.c.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = (self.turned(t) for t in (q, k, v))
        if self.c.positions.startswith("rotary"):
            q, k = self.rotary(q, k)
        k, v = self.repeated(k), self.repeated(v)
        y = self.by_hand(q, k, v) if self.c.attention == "by hand" else self.sdpa(q, k, v)
        return self.o(self.around(self.merged(self.around.heads(y, x)), x))

    def projected(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each (batch, seq, its heads, size)."""
        c = self.c
        B, T, _ = x.shape
        match c.qkv:
            case "separate":
                q, k, v = self.q(x), self.k(x), self.v(x)
            case "einsum":
                return tuple(torch.einsum("btw,hwd->bthd", x, w) for w in self.w)
            case "interleaved":
                return self.interleaved(self.qkv(x).view(B, T, c.heads, 3 * c.size))
            case "grouped":  # each group of queries lies next to its key and value
                each = self.qkv(x).view(B, T, c.kv_heads, c.group + 2, c.size)
                q, k, v = each[..., :-2, :], each[..., -2:-1, :], each[..., -1:, :]
            case "q and kv":
                q, (k, v) = self.q(x), self.parts(self.kv(x), 2, [c.kv_heads * c.size] * 2)
            case "packed":
                q, k, v = self.parts(self.qkv(x), 3, [c.heads * c.size] * 3)
            case _:
                q, k, v = self.parts(self.qkv(x), 3, [n * c.size for n in (c.heads, c.kv_heads, c.kv_heads)])
        return q.reshape(B, T, c.heads, c.size), k.reshape(B, T, -1, c.size), v.reshape(B, T, -1, c.values)

    def parts(self, x: Tensor, n: int, sizes: list[int]) -> tuple[Tensor, ...]:
        match self.c.split:
            case "chunk":
                return x.chunk(n, dim=-1)
            case "split":
                return x.split(sizes, dim=-1)
            case "unbind":
                return x.view(*x.shape[:2], n, -1).unbind(2)
            case _:
                ends = [sum(sizes[: i + 1]) for i in range(n)]
                return tuple(x[..., end - size : end] for end, size in zip(ends, sizes))

    def interleaved(self, each: Tensor) -> tuple[Tensor, ...]:
        """(batch, seq, heads, 3 size), the query, key and value of a head side by side."""
        match self.c.split:
            case "chunk":
                return each.chunk(3, dim=-1)
            case "split":
                return each.split(self.c.size, dim=-1)
            case "unbind":
                return each.unflatten(-1, (3, self.c.size)).permute(3, 0, 1, 2, 4).unbind(0)
            case _:
                size = self.c.size
                return each[..., :size], each[..., size : 2 * size], each[..., 2 * size :]

    def turned(self, x: Tensor) -> Tensor:
        """(batch, seq, heads, size) -> (batch, heads, seq, size)."""
        match self.c.transpose:
            case "transpose":
                return x.transpose(1, 2)
            case "permute":
                return x.permute(0, 2, 1, 3)
            case _:
                return torch.einsum("bthd->bhtd", x)

    def repeated(self, x: Tensor) -> Tensor:
        """A key or value for each query head."""
        c = self.c
        if c.group == 1 or c.repeat in ("enable_gqa", "broadcast"):
            return x
        if c.repeat == "repeat_interleave":
            return x.repeat_interleave(c.group, dim=1)
        B, _, T, _ = x.shape
        return x[:, :, None].expand(-1, -1, c.group, -1, -1).reshape(B, c.heads, T, -1)

    def sdpa(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        gqa = self.c.repeat == "enable_gqa"
        if self.c.attention == "causal":
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=gqa)
        mask = self.seen(q)
        if self.c.positions == "alibi":
            mask = self.distance(q).masked_fill(~mask, float("-inf"))
        scale = None if self.c.scale == "after" else 0.3
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=gqa)

    def by_hand(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        B, H, T, D = q.shape
        if self.c.repeat == "broadcast":  # one more dimension for the queries of a group
            q, k, v = q.reshape(B, self.c.kv_heads, self.c.group, T, D), k.unsqueeze(2), v.unsqueeze(2)
        scores = self.scores(q, k)
        if self.c.cap:
            scores = torch.tanh(scores / 2.0) * 2.0
        if self.c.positions == "alibi":
            scores = scores + self.distance(q).view(*scores.shape[1:-2], T, T)
        scores = self.masked(scores)
        if self.c.softmax == "float32":
            weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(v.dtype)
        else:
            weights = scores.softmax(-1)
        match self.c.product:
            case "bmm":
                y = torch.bmm(weights.reshape(B * H, T, T), v.reshape(B * H, T, -1))
            case "einsum":
                y = torch.einsum("bhqk,bhkd->bhqd", weights, v)
            case _:
                y = weights @ v
        return y.reshape(B, H, T, -1)

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        B, H, T, D = q.shape[0], self.c.heads, q.shape[-2], self.c.size
        if self.c.scale == "before":
            q = q * D**-0.5
        if self.c.scale == "half each":
            q, k = q / D**0.25, k / D**0.25
        match self.c.product:
            case "bmm":
                scores = torch.bmm(q.reshape(B * H, T, D), k.reshape(B * H, T, D).transpose(1, 2)).view(B, H, T, T)
            case "einsum":
                scores = torch.einsum("bhqd,bhkd->bhqk", q, k)
            case _:
                scores = torch.matmul(q, k.transpose(-2, -1))
        return scores / math.sqrt(D) if self.c.scale == "after" else scores

    def seen(self, q: Tensor) -> Tensor:
        """Which keys a query sees, as booleans."""
        if self.window is None:
            return self.past(q)
        at = torch.arange(q.size(-2), device=q.device)
        return self.past(q) & (at[:, None] - at[None, :] < self.window)

    def past(self, q: Tensor) -> Tensor:
        T = q.size(-2)
        match self.c.mask:
            case "tril buffer":
                return self.mask[:, :, :T, :T] == 1
            case "tril" | "where":
                return torch.tril(torch.ones(T, T, dtype=torch.bool, device=q.device))
            case "arange":
                at = torch.arange(T, device=q.device)
                return at[None, :] <= at[:, None]
            case _:
                return torch.triu(torch.ones(T, T, device=q.device), diagonal=1) == 0

    def masked(self, scores: Tensor) -> Tensor:
        T = scores.size(-1)
        match "" if self.window else self.c.mask:
            case "triu of -inf":
                return scores + torch.triu(torch.full((T, T), float("-inf"), device=scores.device), diagonal=1)
            case "where":
                return torch.where(self.seen(scores), scores, torch.finfo(scores.dtype).min)
            case _:
                return scores.masked_fill(~self.seen(scores), float("-inf"))

    def distance(self, q: Tensor) -> Tensor:
        """ALiBi: (heads, seq, seq), nearer keys first."""
        at = torch.arange(q.size(-2), device=q.device)
        return self.slopes.view(-1, 1, 1) * (at[None, :] - at[:, None]).to(q.dtype)

    def merged(self, y: Tensor) -> Tensor:
        B, H, T, D = y.shape
        match self.c.merge:
            case "reshape":
                return y.transpose(1, 2).reshape(B, T, H * D)
            case "contiguous view":
                return y.transpose(1, 2).contiguous().view(B, T, -1)
            case _:
                return y.permute(0, 2, 1, 3).flatten(2)
