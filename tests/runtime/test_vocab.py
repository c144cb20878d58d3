"""Embedding and cross-entropy over a split vocabulary equal those over the whole."""

import pytest
import torch
import torch.nn.functional as F

from graphpar.runtime import all_reduce, reduce_scatter, simulate, vocab_cross_entropy, vocab_embedding

VOCAB = 11


def padded(x, ranks, dim):
    missing = -x.shape[dim] % ranks
    return torch.cat([x, x.new_full([missing if d == dim else s for d, s in enumerate(x.shape)], 7.0)], dim)


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def labels_of(kind):
    labels = torch.randint(0, VOCAB, (3, 8), generator=torch.Generator().manual_seed(1))
    if kind == "ignored":
        labels[0, 2:] = labels[2, 5] = -100
    if kind == "all ignored":
        labels[:] = -100
    return labels


@pytest.mark.parametrize("sizes", [{"tp": 1}, {"tp": 2}, {"tp": 4}, {"dp": 2, "tp": 2}, {"tp": 8}], ids=str)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("reduction", ["sum", "mean", "none"])
@pytest.mark.parametrize("kind", ["all valid", "ignored", "all ignored"])
def test_cross_entropy_and_its_gradient_are_those_of_the_whole(sizes, smoothing, reduction, kind):
    logits, labels = draw(3, 8, VOCAB), labels_of(kind)
    if kind == "all ignored" and reduction == "mean":
        pytest.skip("0 / 0")
    whole = logits.clone().requires_grad_()
    how = {"label_smoothing": smoothing, "reduction": reduction}
    expected = F.cross_entropy(whole.view(-1, VOCAB), labels.view(-1), **how)
    upstream = draw(*expected.shape, seed=3)
    expected.backward(upstream)

    def check(mesh):
        axis = mesh[tuple(sizes)]
        local = padded(logits, axis.size, 2).chunk(axis.size, 2)[axis.rank].clone().requires_grad_()
        loss = vocab_cross_entropy(local, labels, axis, vocab=VOCAB, **how)
        loss.backward(upstream)
        torch.testing.assert_close(loss.detach(), expected.detach(), rtol=1e-12, atol=1e-12)
        want = torch.cat([whole.grad, whole.grad.new_zeros(3, 8, -VOCAB % axis.size)], 2)
        torch.testing.assert_close(local.grad, want.chunk(axis.size, 2)[axis.rank], rtol=1e-12, atol=1e-12)
        return loss.detach()

    losses = simulate(sizes, check)
    assert all(torch.equal(losses[0], loss) for loss in losses)


def test_a_rank_that_holds_only_padding_takes_part():
    logits, labels = draw(6, 5), torch.tensor([0, 4, 2, -100, 3, 1])
    whole = logits.clone().requires_grad_()
    expected = F.cross_entropy(whole, labels, reduction="sum")
    expected.backward()

    def check(mesh):
        axis = mesh["tp"]
        local = torch.cat([logits, torch.full((6, 3), 9.0)], 1).chunk(4, 1)[axis.rank].clone().requires_grad_()
        loss = vocab_cross_entropy(local, labels, axis, vocab=5)
        loss.backward()
        torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)
        return local.grad

    gradients = simulate({"tp": 4}, check)
    torch.testing.assert_close(torch.cat(gradients, 1)[:, :5], whole.grad, rtol=1e-12, atol=1e-12)
    assert not gradients[3].any()


def test_on_one_rank_it_is_the_very_same_number():
    logits, labels = draw(4, 6, VOCAB).float(), labels_of("ignored")[:, :6]
    labels = torch.cat([labels, labels[:1]])

    def check(mesh):
        loss = vocab_cross_entropy(F.pad(logits, (0, 5), value=9.0), labels, mesh["tp"], vocab=VOCAB)
        assert torch.equal(loss, F.cross_entropy(logits.view(-1, VOCAB), labels.view(-1), reduction="sum"))

    simulate({"tp": 1}, check)


def test_large_logits_and_narrow_dtypes_stay_finite():
    def check(mesh):
        axis = mesh["tp"]
        local = torch.full((2, 3), 300.0 * axis.rank, dtype=torch.bfloat16, requires_grad=True)
        loss = vocab_cross_entropy(local, torch.tensor([0, 5]), axis, vocab=6)
        loss.backward()
        assert loss.dtype == torch.float32
        torch.testing.assert_close(loss.item(), 300 + 2 * torch.tensor(3.0).log().item())
        assert local.grad.dtype == torch.bfloat16
        assert local.grad.isfinite().all()

    simulate({"tp": 2}, check)


@pytest.mark.parametrize("label", [-3, VOCAB])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_label_outside_the_vocabulary_is_an_error(label, ranks):
    def f(mesh):
        local = torch.zeros(1, -(-VOCAB // ranks))
        vocab_cross_entropy(local, torch.tensor([label]), mesh["tp"], vocab=VOCAB)

    with pytest.raises((IndexError, RuntimeError), match=r"out of (bounds|range)"):
        simulate({"tp": ranks}, f)


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("padding_idx", [None, 0, 7])
def test_embedding_and_its_gradient_are_those_of_the_whole(ranks, padding_idx):
    weight, ids = draw(8, 3), torch.tensor([[0, 7, 3, 3], [5, 7, 0, 2]])
    whole = weight.clone().requires_grad_()
    expected = F.embedding(ids, whole, padding_idx)
    upstream = draw(2, 4, 3, seed=2)
    expected.backward(upstream)

    def check(mesh):
        axis = mesh["tp"]
        local = weight.chunk(ranks)[axis.rank].clone().requires_grad_()
        out = all_reduce(vocab_embedding(ids, local, axis, padding_idx), axis)
        out.backward(upstream)
        assert torch.equal(out, expected)
        torch.testing.assert_close(local.grad, whole.grad.chunk(ranks)[axis.rank], rtol=1e-15, atol=0)
        local.grad = None
        out = reduce_scatter(vocab_embedding(ids, local, axis, padding_idx), axis, 1)
        out.backward(upstream.chunk(ranks, 1)[axis.rank])
        torch.testing.assert_close(local.grad, whole.grad.chunk(ranks)[axis.rank], rtol=1e-15, atol=0)

    simulate({"tp": ranks}, check)


@pytest.mark.parametrize("bad", [-1, 8])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_an_id_outside_the_vocabulary_is_an_error(bad, ranks):
    with pytest.raises(IndexError):
        simulate(
            {"tp": ranks}, lambda mesh: vocab_embedding(torch.tensor([bad]), torch.ones(8 // ranks, 3), mesh["tp"])
        )
