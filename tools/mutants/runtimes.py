"""Mistakes of the runtime: each replaces one function for as long as a verification takes."""

from collections.abc import Callable
from typing import Any

import torch

from tools.mutants import wrong
from tools.mutants.mutant import Mutant, Patch

RUNTIME, PROGRAM = "graphpar.runtime", "graphpar.verify.program"
STEPS, RUNS = "graphpar.verify.steps", "graphpar.verify.runs"
COLLECTIVES, VOCAB, RANDOM = f"{RUNTIME}.collectives", f"{RUNTIME}.vocab", f"{RUNTIME}.random"

ROWS = "the loss is a sum over the rows of all data ranks: which of them takes which rows changes nothing"


def _patch(name: str, kind: str, build: str, target: str, make: Callable[[Any], Any], **facts: Any) -> Mutant:
    return Mutant(name, kind, build, (Patch(target, make),), **facts)


def _always(value: Any) -> Callable[[Any], Any]:
    """A function that gives one value, whatever it is asked."""
    return lambda right: lambda *args, **kwargs: value


RUNTIMES = (
    _patch(
        "the backward of a sum doubles",
        "backward",
        "gpt tp2",
        f"{COLLECTIVES}:_AllReduce.backward",
        lambda right: lambda ctx, grad: (grad * 2, None),
        spoils="gradient of proj",
    ),
    _patch(
        "the backward of a gather keeps one rank's part",
        "backward",
        "gpt tp2+sp",
        f"{COLLECTIVES}:_AllGather.backward",
        wrong.slices,
        spoils="gradient",
    ),
    _patch(
        "a gradient that is not summed",
        "backward",
        "llama kv2xq2",
        f"{COLLECTIVES}:_GradAllReduce.backward",
        lambda right: lambda ctx, grad: (grad, None),
        spoils="gradient",
    ),
    _patch(
        "a sum that leaves out the last rank",
        "drop",
        "gpt tp2",
        f"{RUNTIME}.simulate:add",
        lambda right: lambda parts: right([*parts[:-1], torch.zeros_like(parts[-1])]),
        spoils="tok_emb",
    ),
    _patch(
        "parts gathered in the other order",
        "reorder",
        "gpt tp2+sp",
        f"{RUNTIME}.axis:join",
        lambda right: lambda parts, n, *how: right(torch.cat(parts.chunk(n)[::-1]), n, *how),
        spoils="x in|x = all_gather",
    ),
    _patch(
        "the mean loss of the ranks",
        "mean",
        "gpt dp2",
        f"{STEPS}:over_data",
        lambda right: (
            lambda share, plan, mesh: right(share, plan, mesh) / (mesh["dp"].size if share.is_floating_point() else 1)
        ),
        spoils="^the loss$",
    ),
    _patch(
        "the mean of the gradients",
        "mean",
        "gpt dp2xtp2",
        f"{RUNTIME}.gradients:_Bucket.finish",
        wrong.mean_of_gradients,
        spoils="gradient",
    ),
    _patch(
        "labels counted in one microbatch",
        "loss",
        "gpt dp2",
        f"{RUNS}:count_labels",
        lambda right: lambda model, batches, plan, mesh: right(model, batches[-1:], plan, mesh),
        spoils="losses",
    ),
    _patch(
        "labels counted on one rank",
        "loss",
        "gpt dp2xtp2",
        f"{RUNS}:count_labels",
        lambda right: lambda model, batches, plan, mesh: sum(model.count(**b) for b in batches),
        spoils="^the loss$",
    ),
    _patch("a norm that counts replicas", "clip", "gpt dp2xtp2", f"{RUNTIME}.norms:_copies", _always(1), spoils="norm"),
    _patch("a norm that counts shards once", "clip", "gpt tp2", f"{RUNTIME}.norms:_copies", _always(2), spoils="norm"),
    _patch(
        "clipping by the norm of one rank",
        "clip",
        "gpt tp2+sp",
        f"{RUNTIME}.norms:gradient_norm",
        wrong.own_norm,
        spoils="norm",
    ),
    _patch("no clipping", "clip", "gpt dp2", "torch.nn.utils:clip_grads_with_norm_", wrong.no_clipping, spoils="norms"),
    _patch(
        "sums that start before the last backward",
        "reducer",
        "gpt dp2",
        f"{RUNS}:GradientSums",
        wrong.early_sums,
        spoils="norms",
    ),
    _patch(
        "sums that start while backward still fills them",
        "reducer",
        "gpt dp2xtp2+sp",
        f"{RUNTIME}.gradients:GradientSums._arrived",
        wrong.hasty,
        spoils="came after its sum had started",
    ),
    _patch(
        "the last bucket is not summed",
        "reducer",
        "gpt dp2",
        f"{RUNTIME}.gradients:buckets",
        lambda right: lambda *args: right(*args)[:-1],
        spoils="gradient",
    ),
    _patch(
        "norms are not summed over tp",
        "reducer",
        "llama dp2xtp2+sp",
        f"{RUNTIME}.gradients:_gradient",
        wrong.only_data,
        spoils="gradient of .*norm",
    ),
    _patch(
        "gradients of the step before", "reducer", "gpt tp2", f"{STEPS}:adamw", wrong.keeps_gradients, spoils="norms"
    ),
    _patch(
        "a sum that is not put in place",
        "reducer",
        "gpt dp2",
        f"{RUNTIME}.gradients:_Bucket.finish",
        wrong.no_wait,
        spoils="gradient",
    ),
    _patch(
        "equal masks everywhere",
        "dropout",
        "gpt dp2xtp2",
        f"{RANDOM}:Randomness.seed_of",
        wrong.same_streams,
        spoils="masks",
    ),
    _patch(
        "masks that differ on every rank",
        "dropout",
        "gpt dp2xtp2",
        f"{RANDOM}:Randomness.seed_of",
        wrong.own_streams,
        spoils="dropout: replicas",
    ),
    _patch(
        "masks of the first rank's part",
        "dropout",
        "gpt exact",
        f"{RANDOM}:take",
        lambda right: lambda x, n, i, *how: right(x, n, 0, *how),
    ),
    _patch(
        "what is kept is not scaled",
        "dropout",
        "tied exact",
        f"{RANDOM}:dropout",
        wrong.unscaled,
        spoils="with dropout",
    ),
    _patch(
        "one matrix loaded from the other rank",
        "loading",
        "gpt tp2",
        f"{PROGRAM}:cut",
        wrong.swapped((128, 32)),
        spoils="mlp|projected|scaled",
    ),
    _patch(
        "one matrix loaded a row too far",
        "loading",
        "gpt dp2xtp2+sp",
        f"{PROGRAM}:cut",
        wrong.shifted((128, 32)),
        spoils="mlp|projected|scaled",
    ),
    _patch(
        "heads of keys loaded from the other rank",
        "loading",
        "llama dp2xtp2+sp",
        f"{PROGRAM}:cut",
        wrong.swapped((16, 64)),
        spoils="wk|wv|xk|xv",
    ),
    _patch(
        "rotary tables of the next position",
        "loading",
        "llama tp2+sp",
        f"{PROGRAM}:cut",
        wrong.shifted((48, 4)),
        spoils="cos|sin",
    ),
    _patch(
        "initial values a row too far",
        "loading",
        "gpt dp2xtp2",
        f"{RUNTIME}.initialise:cut",
        wrong.shifted((128, 32)),
        spoils="mlp.0.weight",
    ),
    _patch(
        "initial values of the other rank",
        "loading",
        "llama dp2xtp2+sp",
        f"{RUNTIME}.initialise:cut",
        wrong.swapped((16, 64)),
        spoils="attention.wk.weight",
    ),
    _patch(
        "another seed for initial values",
        "loading",
        "gpt dp2",
        "graphpar.verify.ranks:initialise",
        lambda right: lambda model, plan, tape, seed, mesh: right(model, plan, tape, seed + 1, mesh),
        spoils="pos_emb",
    ),
    _patch(
        "data ranks read each other's rows", "loading", "gpt dp2", f"{PROGRAM}:block", wrong.other_rows, equivalent=ROWS
    ),
    _patch("data ranks read the same rows", "loading", "tied dp2", f"{PROGRAM}:block", wrong.first_rows, spoils="emb"),
    _patch(
        "padding that is not zero",
        "padding",
        "gpt dp2xtp2",
        f"{RUNTIME}.shards:_pad",
        wrong.padded_with_ones,
        spoils="padding",
    ),
    _patch(
        "the first row of the next part is read as well",
        "padding",
        "tied tp2",
        f"{VOCAB}:_elsewhere",
        wrong.one_row_more,
        spoils="emb",
    ),
    _patch(
        "the log of one rank's exponentials",
        "padding",
        "gpt tp2",
        f"{VOCAB}:upcast",
        wrong.first_columns,
        spoils="returned value",
    ),
    _patch(
        "one parameter is stale on one data rank",
        "stale",
        "gpt dp2xtp2",
        f"{STEPS}:adamw",
        wrong.stale_on_one_rank,
        spoils="pos_emb",
    ),
    _patch(
        "one parameter is never updated", "stale", "gpt tp2", f"{STEPS}:adamw", wrong.stale_everywhere, spoils="pos_emb"
    ),
    _patch("the rate of the step before", "stale", "gpt dp2", f"{STEPS}:set_rate", _always(None), spoils="parameters"),
    _patch(
        "biases decay",
        "optimizer",
        "gpt tp2",
        f"{RUNTIME}.optimizer:DecayGroups.of",
        wrong.everything_decays,
        spoils="bias",
    ),
)
