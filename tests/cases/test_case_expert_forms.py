"""Ways to write a mixture of experts, each on ranks that have some of the experts."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from builds import layout
from parts import Block, Decoder
from test_case_experts import Router
from torch import nn
from written import Written

EP2 = layout({"ep": 2}, "batch ep") | {"moe": {"experts": "ep"}}
EP2_TP2 = layout({"ep": 2, "tp": 2}, "batch ep", "d_ff tp", "seq tp") | {"moe": {"experts": "ep"}}


class Looked(Router):
    """Two einsums with the matrices of the chosen experts, a third for the weights."""

    def forward(self, x):
        _, weights, ids = self.chosen(x)
        inside = F.silu(torch.einsum("bsd,bskdf->bskf", x, self.up[ids]))
        return torch.einsum("bskd,bsk->bsd", torch.einsum("bskf,bskfd->bskd", inside, self.down[ids]), weights)


class Repeated(Router):
    """Flat tokens, repeated for each choice, and columns instead of rows."""

    def forward(self, x):
        _, weights, ids = self.chosen(x)
        rows = x.reshape(-1, 32).repeat_interleave(2, dim=0)
        chosen = ids.reshape(-1)
        inside = torch.bmm(self.up[chosen].transpose(1, 2), rows.unsqueeze(-1)).squeeze(-1).relu()
        done = torch.bmm(inside.unsqueeze(1), self.down[chosen]).squeeze(1)
        return (done.view(-1, 2, 32) * weights.reshape(-1, 2, 1)).sum(1).view_as(x)


class Held(Router):
    """Experts are trained, and give no gradient to what is below them."""

    def forward(self, x):
        _, weights, ids = self.chosen(x)
        rows = x.unsqueeze(-2).expand(-1, -1, 2, -1).detach()
        inside = torch.einsum("bskd,bskdf->bskf", rows, self.up[ids]).tanh()
        done = torch.einsum("bskf,bskfd->bskd", inside, self.down[ids])
        return (done * weights.unsqueeze(-1)).sum(-2)


class Unweighted(Router):
    """Sorted rows put back by the inverse of their order, and added up as they are."""

    def forward(self, x):
        scores, _, ids = self.chosen(x)
        order = ids.reshape(-1).argsort()
        back = order.argsort()
        chosen = ids.reshape(-1)[order]
        rows = x.reshape(-1, 32)[order // 2]
        inside = (rows.unsqueeze(1) @ self.up[chosen]).squeeze(1).sigmoid()
        done = (inside.unsqueeze(1) @ self.down[chosen]).squeeze(1)[back]
        return done.view(*x.shape[:2], 2, 32).sum(2) * (1 + scores.amax(-1, keepdim=True))


@pytest.mark.parametrize("mlp", [Looked, Repeated, Held, Unweighted])
@pytest.mark.parametrize("document", [EP2, EP2_TP2], ids=["ep2", "ep2xtp2+sp"])
def test_a_mixture_is_found_however_it_is_written(mlp: type[nn.Module], document) -> None:
    written = Written(lambda: Decoder([Block(mlp=mlp()) for _ in range(2)]))
    written.holds(document)
    text = written.compiled(document).files["model.py"]
    assert text.count("to_experts(") == text.count("to_tokens(") == 1
