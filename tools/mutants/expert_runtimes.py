"""Mistakes of the runtime of experts: each replaces one function for as long as a verification takes."""

from collections.abc import Callable
from typing import Any

from tools.mutants import wrong, wrong_experts
from tools.mutants.mutant import Mutant, Patch

RUNTIME, PROGRAM = "graphpar.runtime", "graphpar.verify.program"
EXPERTS, PRODUCTS, ROUTING = f"{RUNTIME}.experts", f"{RUNTIME}.expert_products", f"{RUNTIME}.routing"
WHOLE = ((8, 48, 40), (8, 40), (8, 40, 48))  # the experts of `sorted`

SAME_EXPERT = (
    "one expert has the same rows in another order, forward and backward: only sums over them round differently"
)


def _patch(
    name: str, kind: str, builds: str, target: str, make: Callable[[Any], Any], spoils: str = "", **facts: Any
) -> tuple[Mutant, ...]:
    """The same mistake in several builds, between commas."""
    edits = tuple(Patch(one, make) for one in target.split())
    return tuple(Mutant(name, kind, build, edits, spoils=spoils, **facts) for build in builds.split(", "))


EXPERT_RUNTIMES = (
    *_patch(
        "no gradient comes back from the experts",
        "backward",
        "sorted ep2, mixtral ep=dp, gpt_oss ep2xtp2",
        f"{EXPERTS}:_ToExperts.backward",
        wrong_experts.no_gradient_of_tokens,
        "gradient of rows",
    ),
    *_patch(
        "no gradient goes to the experts",
        "backward",
        "sorted ep2xtp2+sp, mixtral ep2",
        f"{EXPERTS}:_ToTokens.backward",
        wrong_experts.no_gradient_of_experts,
        "gradient of (y|x|experts|projected)",
    ),
    *_patch(
        "gradients of rows stay with the experts",
        "backward",
        "sorted ep2, mixtral ep2xtp2+sp",
        f"{EXPERTS}:_ToExperts.backward",
        wrong_experts.unsent_to_tokens,
        "gradient of (rows|hidden_states)|collectives",
    ),
    *_patch(
        "gradients of rows stay with the tokens",
        "backward",
        "sorted ep2xtp2, mixtral ep=dp",
        f"{EXPERTS}:_ToTokens.backward",
        wrong_experts.unsent_to_experts,
        "gradient of (y|x|experts|projected)|collectives",
    ),
    *_patch(
        "gradients go back in the order of the experts",
        "backward",
        "sorted ep2, gpt_oss ep2",
        f"{EXPERTS}:_ToExperts.backward",
        wrong_experts.unordered,
        "gradient of rows",
    ),
    *_patch(
        "rows of an expert in another order backward",
        "backward",
        "sorted ep2, mixtral ep2xtp2+sp",
        f"{EXPERTS}:_Dispatch.backward",
        wrong_experts.turned_back,
        "gradient of (tokens|hidden_states)",
    ),
    *_patch(
        "rows by rank, then by expert",
        "rows",
        "sorted ep2, mixtral ep=dp, gpt_oss ep2xtp2",
        f"{ROUTING}:_by_expert",
        wrong_experts.rank_by_rank,
        "rows|ffn|projected|x in",
    ),
    *_patch(
        "rows of the last rank first",
        "rows",
        "sorted ep2, mixtral ep2xtp2+sp",
        f"{ROUTING}:_by_expert",
        wrong_experts.last_rank_first,
        equivalent=SAME_EXPERT,
    ),
    *_patch(
        "the last slots of an expert first",
        "rows",
        "sorted ep2, mixtral ep=dp",
        f"{RUNTIME}:route",
        wrong_experts.turned,
        equivalent=SAME_EXPERT,
    ),
    *_patch(
        "rows combined by their order instead of their place",
        "rows",
        "sorted ep2, mixtral ep2xtp2+sp",
        f"{RUNTIME}:combine",
        wrong_experts.place_for_order,
        "out|hidden_states|projected",
    ),
    *_patch(
        "the same on one device",
        "rows",
        "sorted ep2, mixtral ep2",
        f"{RUNTIME}:combine",
        wrong_experts.place_for_order_everywhere,
        "ffn|experts|mlp",
        everywhere=True,
    ),
    *_patch(
        "counts of the other peer",
        "rows",
        "sorted ep2, mixtral ep=dp",
        f"{RUNTIME}:exchange_counts",
        wrong_experts.other_peer,
        "to_experts",
    ),
    *_patch(
        "as many rows come as go",
        "rows",
        "sorted ep2xtp2, mixtral ep2",
        f"{RUNTIME}:exchange_counts",
        wrong_experts.same_both_ways,
        "to_experts",
    ),
    *_patch(
        "counts of other experts",
        "rows",
        "sorted ep2, gpt_oss ep2",
        f"{RUNTIME}:exchange_counts",
        wrong_experts.counts_of_other_experts,
        "ffn|projected",
    ),
    *_patch(
        "rows of the next rank's experts",
        "rows",
        "sorted ep2+gathered, sorted ep2+same",
        f"{RUNTIME}:own_counts",
        wrong_experts.other_block,
        "ffn|rows|y in",
    ),
    *_patch(
        "rows that begin too early",
        "rows",
        "sorted ep2+gathered, sorted ep2+same",
        f"{RUNTIME}:own_counts",
        wrong_experts.row_before,
        "ffn|rows|y in",
    ),
    *_patch(
        "a rank without rows sends nothing",
        "no rows",
        "sorted ep2, mixtral ep2xtp2+sp",
        f"{EXPERTS}:_send {EXPERTS}:_send_back",
        wrong_experts.none_to_send,
        "few experts",
    ),
    *_patch(
        "an expert without rows has any gradient",
        "no rows",
        "sorted ep2, mixtral ep=dp",
        f"{PRODUCTS}:_Looped.backward",
        wrong_experts.never_written,
        "few experts",
    ),
    *_patch(
        "experts without rows have no gradient",
        "no rows",
        "sorted ep2+same, mixtral ep2",
        f"{RUNTIME}:expert_linear",
        wrong_experts.without_rows,
        "few experts",
    ),
    *_patch(
        "gradients of experts times the ranks",
        "scale",
        "sorted ep2, mixtral ep=dp",
        f"{PRODUCTS}:_Looped.backward",
        wrong_experts.scaled_matrices(2.0),
        "gradient of .*(w_in|w_out|proj)",
    ),
    *_patch(
        "gradients of experts over the ranks",
        "scale",
        "sorted ep2xtp2+sp, gpt_oss ep2xtp2",
        f"{PRODUCTS}:_Looped.backward",
        wrong_experts.scaled_matrices(0.5),
        "gradient of .*(w_in|w_out|proj)",
    ),
    *_patch(
        "the mean of a bias's gradients",
        "mean",
        "sorted ep2, gpt_oss ep2xtp2",
        f"{PRODUCTS}:_sums",
        wrong_experts.mean_bias,
        "gradient of .*(b_in|bias)",
    ),
    *_patch(
        "weights without gradient",
        "router",
        "sorted ep2, mixtral ep2xtp2+sp",
        f"{EXPERTS}:_Combine.backward",
        wrong_experts.no_weights,
        "gradient of (weight|gate|router_scores)",
    ),
    *_patch(
        "the same on one device",
        "router",
        "sorted ep2, mixtral ep2",
        f"{EXPERTS}:_Combine.backward",
        wrong_experts.no_weights_everywhere,
        "captured program",
        everywhere=True,
    ),
    *_patch(
        "the gradient of the other slot's weight",
        "router",
        "sorted ep2, gpt_oss ep2",
        f"{EXPERTS}:_Combine.backward",
        wrong_experts.slots_of_others,
        "gradient of (weight|gate|router_scores)",
    ),
    *_patch(
        "all experts loaded from the next rank",
        "loading",
        "sorted ep2, sorted ep2xtp2+sp",
        f"{PROGRAM}:cut",
        wrong_experts.swapped_experts(*WHOLE),
        "ffn",
    ),
    *_patch(
        "one stack of experts loaded from the next rank",
        "loading",
        "sorted ep2, mixtral ep=dp",
        f"{PROGRAM}:cut",
        wrong_experts.swapped_experts((8, 48, 40), (8, 96, 32)),
        "ffn|projected|part",
    ),
    *_patch(
        "experts loaded one too far",
        "loading",
        "sorted ep2+gathered, sorted ep2",
        f"{PROGRAM}:cut",
        wrong.shifted((8, 48, 40)),
        "ffn",
    ),
    *_patch(
        "experts loaded one too far",
        "loading",
        "mixtral ep2",
        f"{PROGRAM}:cut",
        wrong.shifted((8, 32, 48)),
        "projected",
    ),
    *_patch(
        "initial values of the next rank's experts",
        "loading",
        "sorted ep2, mixtral ep=dp",
        f"{RUNTIME}.initialise:cut",
        wrong_experts.swapped_experts(*WHOLE, (8, 96, 32)),
        "w_in|gate_up_proj",
    ),
)
