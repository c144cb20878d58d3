"""A product of groups of rows is that of each group, with torch's kernel and without."""

from __future__ import annotations

import pytest
import torch

from graphpar.runtime import grouped_matmul

OFFSETS = [torch.tensor(o, dtype=torch.int32) for o in ([3, 3, 7, 10], [0, 0, 0, 10], [10, 10, 10, 10])]


@pytest.mark.parametrize("offsets", OFFSETS, ids=str)
@pytest.mark.parametrize("width", [32, 30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_group_has_its_own_matrix(dtype: torch.dtype, width: int, offsets: torch.Tensor) -> None:
    random = torch.Generator().manual_seed(0)
    x = torch.randn(10, width, dtype=dtype, generator=random, requires_grad=True)
    w = torch.randn(4, 24, width, dtype=dtype, generator=random, requires_grad=True)
    made = grouped_matmul(x, w.mT, offsets)
    group = torch.bucketize(torch.arange(10), offsets, right=True)
    want = torch.einsum("rk,rnk->rn", x, w[group])
    upstream = torch.randn(24, dtype=dtype, generator=random).expand(10, 24)  # the same for every row, as of a sum
    close = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {}
    torch.testing.assert_close(made, want, **close)
    gradients = [torch.autograd.grad(y, (x, w), upstream, retain_graph=True) for y in (made, want)]
    torch.testing.assert_close(*gradients, **close)


def test_rows_behind_the_last_group_are_zero() -> None:
    x, w = torch.randn(6, 5, dtype=torch.float64), torch.randn(2, 5, 3, dtype=torch.float64)
    made = grouped_matmul(x, w, torch.tensor([1, 4]))
    assert made[4:].count_nonzero() == 0 and made[:4].count_nonzero() == 12
