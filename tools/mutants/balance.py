"""Mistakes of the loss that balances experts."""

from tools.mutants.experts import texts

SHARE, PROBABILITY = "sorted ep2, sorted ep2xtp2+sp", "mixtral ep2, mixtral ep2xtp2+sp"

BALANCE = (
    *texts(
        "shares of each rank",
        "balance",
        SHARE,
        (r"all_reduce\(share, self.ep\)", "share * 1"),
    ),
    *texts(
        "shares of each rank",
        "balance",
        PROBABILITY,
        (r"all_reduce\(tokens_per_expert_sum, self.ep\)", "tokens_per_expert_sum * 1"),
    ),
    *texts(
        "probabilities of each rank",
        "balance",
        SHARE,
        (r"all_reduce\(ffn, self.ep\)", "ffn * 1"),
    ),
    *texts(
        "probabilities of each rank",
        "balance",
        PROBABILITY,
        (r"all_reduce\(router_prob_sum, self.ep\)", "router_prob_sum * 1"),
    ),
    *texts(
        "probabilities of each part of a sequence",
        "balance",
        "mixtral ep2xtp2+sp",
        (r"all_reduce\(router_prob_sum, self.tp\)", "router_prob_sum * 1"),
    ),
    *texts(
        "means over the tokens of a rank",
        "balance",
        "sorted ep2",
        (r"(probs.sum\(0\) / )\(2\*", r"\1("),
    ),
    *texts(
        "means over the tokens of a rank",
        "balance",
        "mixtral ep2, mixtral ep=dp",
        (r"(router_prob_sum / \()4\*", r"\g<1>2*"),
    ),
    *texts(
        "the mean of the losses of ranks",
        "balance",
        "sorted ep2",
        (r"all_reduce\(share, self.ep\)", "share * 2"),
        (r"all_reduce\(ffn, self.ep\)", "ffn * 2"),
        (r"\(share \* ffn\).sum\(\) \* 8", "all_reduce((share * ffn).sum() * 8 / 2, self.ep)"),
        spoils="balance",
    ),
    *texts(
        "the mean of the losses of ranks",
        "balance",
        "mixtral ep2",
        *((rf"all_reduce\({name}, self.ep\)", f"{name} * 2") for name in ("tokens_per_expert_sum", "router_prob_sum")),
        *((rf"all_reduce\({name}, self.ep\)", f"{name} * 2") for name in ("counts", "x")),
        (r"scaled \* 0.001", "all_reduce(scaled * 0.001 / 2, self.ep)"),
        spoils="scaled",
    ),
    *texts(
        "a balance that teaches nobody",
        "balance",
        "sorted ep2",
        (r"probs.sum\(0\)", "probs.detach().sum(0)"),
        spoils="gradient of probs",
    ),
    *texts(
        "a balance that teaches nobody",
        "balance",
        "mixtral ep=dp",
        (r"upcast\(routing_weights\).sum\(0\)", "upcast(routing_weights).detach().sum(0)"),
        spoils="gradient of router_prob_sum",
    ),
    *texts(
        "the z loss of each rank",
        "balance",
        SHARE,
        (r"all_reduce\(scaled, self.ep\)", "scaled * 1"),
    ),
    *texts(
        "a loss that every rank counts",
        "balance",
        "sorted ep2, mixtral ep=dp",
        (r"first_only\((\w+), self.(?:ep|dp)\)", r"\1 * 1"),
    ),
    *texts(
        "a balance counted on every rank",
        "balance",
        "sorted ep2",
        (r"all_reduce\(loss, self.ep\)", "loss * 1"),
        (r"first_only\(x, self.ep\)", "x * 1"),
    ),
    *texts(
        "a balance counted on every rank",
        "balance",
        "mixtral ep2",
        (r"all_reduce\(loss, self.ep\)", "loss * 1"),
        (r"first_only\(loss, self.ep\)", "loss * 1"),
    ),
)
