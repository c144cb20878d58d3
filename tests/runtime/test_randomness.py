"""Masks are equal where values are, independent where values are cut, and the same when drawn again."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from graphpar.runtime import attention, dropout, simulate, stream_seed
from graphpar.runtime.blocks import take

ONES = torch.ones(8, 16, dtype=torch.float64)


def masks(sizes, names, **kwargs):
    def f(mesh):
        mesh.seed(5, step=2)
        return dropout(ONES, 0.5, True, mesh.random(*names)) != 0

    return simulate(sizes, f, **kwargs)


def test_masks_are_equal_along_replicated_axes_and_differ_along_sharded_ones():
    m = masks({"dp": 2, "tp": 2}, ("dp",))
    assert torch.equal(m[0], m[1])
    assert torch.equal(m[2], m[3])
    assert not torch.equal(m[0], m[2])
    all_different = masks({"dp": 2, "tp": 2}, ("tp", "dp"))
    assert len({mask.numpy().tobytes() for mask in all_different}) == 4


def test_seed_step_and_microbatch_each_matter_and_nothing_else():
    def f(mesh):
        draws = []
        for now in [(1, 0, 0), (2, 0, 0), (1, 1, 0), (1, 0, 1), (1, 0, 0)]:
            mesh.seed(*now)
            torch.rand(3)  # the default generator is another matter
            draws.append(dropout(ONES, 0.5, True, mesh.random("tp")))
        return draws

    first, *others, again = simulate({"tp": 2}, f)[1]
    assert torch.equal(first, again)
    assert not any(torch.equal(first, other) for other in others)


def test_an_axis_of_size_one_does_not_change_the_numbers():
    assert torch.equal(masks({"dp": 1, "tp": 1}, ("dp", "tp"))[0], masks({}, ())[0])


def test_the_mean_is_kept_and_p_0_p_1_and_evaluation_are_exact():
    def f(mesh):
        stream = mesh.random()
        x = torch.ones(400, 400, requires_grad=True)
        y = dropout(x, 0.3, True, stream)
        y.sum().backward()
        assert abs(y.mean().item() - 1) < 0.02
        assert torch.equal(x.grad, y)  # the same mask and scale
        assert dropout(x, 0.3, False, stream) is x
        assert dropout(x, 0.0, True, stream) is x
        assert not dropout(x, 1.0, True, stream).any()

    simulate({}, f)


def local(x, cut):
    for dim, axis, blocks in cut:
        x = take(x, axis.size, axis.rank, dim, blocks)
    return x


@pytest.mark.parametrize("sizes", [{"dp": 1, "tp": 1}, {"dp": 2, "tp": 2}, {"dp": 4, "tp": 2}], ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_exact_masks_are_those_of_one_device(sizes, dtype):
    x = torch.randn(8, 6, 16, generator=torch.Generator().manual_seed(0)).to(dtype)
    torch.manual_seed(stream_seed(3, 7, 1, {}))
    expected = [F.dropout(x, 0.4) for _ in range(2)]

    def check(mesh):
        mesh.seed(3, 7, 1)
        dp, tp = mesh["dp"], mesh["tp"]
        cut = ((0, dp, 1), (2, tp, 4))
        for whole in expected:
            part = dropout(local(x, cut), 0.4, True, mesh.random("dp", "tp"), cut)
            torch.testing.assert_close(part, local(whole, cut))

    simulate(sizes, check, rng="exact")


def test_a_dimension_may_be_cut_twice_outermost_first():
    torch.manual_seed(stream_seed(0, 0, 0, {}))
    expected = F.dropout(ONES, 0.5)

    def f(mesh):
        cut = ((0, mesh["cp"], 1), (0, mesh["tp"], 1))
        return dropout(ONES[:2], 0.5, True, mesh.random("cp", "tp"), cut)

    assert torch.equal(torch.cat(simulate({"cp": 2, "tp": 2}, f, rng="exact")), expected)


def test_recomputation_draws_the_same_mask_and_later_draws_go_on():
    def f(mesh):
        stream = mesh.random("tp")
        x = torch.ones(64, requires_grad=True)
        y = checkpoint(
            lambda x: dropout(x, 0.5, True, stream).sin(),
            x,
            use_reentrant=False,
            preserve_rng_state=False,
            context_fn=mesh.replay,
        )
        after = dropout(x.detach(), 0.5, True, stream)
        y.sum().backward()
        kept = y != 0
        assert torch.equal(x.grad != 0, kept)
        mesh.seed(0)
        assert torch.equal(dropout(x.detach(), 0.5, True, stream) != 0, kept)
        assert torch.equal(dropout(x.detach(), 0.5, True, stream), after)

    simulate({"tp": 2}, f)
    simulate({"tp": 2}, f, rng="exact")


def qkv(heads=4):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, heads, 5, 8, generator=generator, dtype=torch.float64) for _ in range(3)]


def test_attention_draws_from_the_stream_and_leaves_the_default_generator_alone():
    def f(mesh):
        outs = []
        for names in ((), ("tp",)):
            mesh.seed(1)
            outs.append(attention(*qkv(), dropout_p=0.5, training=True, stream=mesh.random(*names), is_causal=True))
        return outs

    before = torch.get_rng_state()  # on no rank: another one may have borrowed the generator just then
    (same, cut), (same_too, cut_too) = simulate({"tp": 2}, f)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(same, same_too)
    assert not torch.equal(cut, cut_too)


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("mask", [None, "causal", "bool", "float"])
def test_exact_attention_is_that_of_one_device(ranks, mask):
    q, k, v = qkv()
    how = {"is_causal": mask == "causal"}
    if mask in ("bool", "float"):
        how["attn_mask"] = torch.ones(5, 5).tril(1).bool() if mask == "bool" else torch.randn(5, 5, dtype=torch.float64)
    torch.manual_seed(stream_seed(0, 0, 0, {}))
    expected = F.scaled_dot_product_attention(q, k, v, dropout_p=0.5, **how)

    def f(mesh):
        own = [t.chunk(ranks, 1)[mesh["tp"].rank] for t in (q, k, v)]
        cut = ((1, mesh["tp"], 1),)
        return attention(*own, dropout_p=0.5, training=True, stream=mesh.random("tp"), cut=cut, **how)

    torch.testing.assert_close(torch.cat(simulate({"tp": ranks}, f, rng="exact"), 1), expected, rtol=1e-12, atol=1e-12)


def test_attention_without_dropout_is_the_fused_one_with_its_options():
    q, k, v = qkv()
    k, v = k[:, :2], v[:, :2]
    expected = F.scaled_dot_product_attention(q, k, v, enable_gqa=True, scale=0.3)

    def f(mesh):
        how = {"stream": mesh.random(), "enable_gqa": True, "scale": 0.3}
        assert torch.equal(attention(q, k, v, dropout_p=0.5, training=False, **how), expected)
        exact = attention(q, k, v, dropout_p=1e-12, training=True, **how)
        torch.testing.assert_close(exact, expected, rtol=1e-10, atol=1e-10)

    simulate({}, f, rng="exact")
