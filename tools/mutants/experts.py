"""Mistakes in the text of experts: rows, routers, biases, sums of gradients, and the loss that balances experts."""

from collections.abc import Callable
from typing import Any

from tools.mutants.mutant import Json, Mutant, Text

TENSOR, SEQUENCE = "sorted ep2xtp2, gpt_oss ep2xtp2", "sorted ep2xtp2+sp, mixtral ep2xtp2+sp"
ROUTERS = r"(weight|gate|router_top_value|router_scores)"
BY_RANK = "the experts get all tokens rank by rank, and each rank gets back its own: no expert knows what token it has"
LAYER = 'self.ep.mesh.__dict__.setdefault("kept", {})'  # of the first layer, in all layers


def texts(
    name: str, kind: str, builds: str, *edits: tuple[str, ...] | Json, spoils: str = "", equivalent: str = ""
) -> tuple[Mutant, ...]:
    """The same edits, (pattern, new) or (pattern, new, behind) or of plan.json, in several builds, between commas."""
    made = tuple(edit if isinstance(edit, Json) else Text(*edit) for edit in edits)
    return tuple(Mutant(name, kind, b, made, spoils=spoils, equivalent=equivalent) for b in builds.split(", "))


def _parameter(ends: str, change: Callable[[dict[str, Any]], object]) -> Json:
    """The plan says something else of the parameters whose names end so."""
    return Json(lambda plan: [change(entry) for name, entry in plan["parameters"].items() if name.endswith(ends)])


def _sums(ends: str, *axes: str) -> Json:
    return _parameter(ends, lambda entry: entry.update(grad_sum=list(axes)))


ROWS = (
    *texts(
        "rows that are not sent", "drop", "sorted ep2, mixtral ep=dp", (r"to_experts\((\w+), routed, .*?\)", r"\1 * 1")
    ),
    *texts(
        "rows that are not sent back",
        "drop",
        "sorted ep2xtp2, mixtral ep2",
        (r"to_tokens\((\w+), routed, .*?\)", r"\1 * 1"),
        spoils="combine",
    ),
    *texts(
        "rows sent without gradient",
        "backward",
        "sorted ep2, mixtral ep2xtp2+sp",
        (r"to_experts\((\w+),", r"to_experts(\1.detach(),"),
        spoils="gradient of rows",
    ),
    *texts(
        "rows sent back without gradient",
        "backward",
        "sorted ep2xtp2, mixtral ep=dp",
        (r"to_tokens\((\w+),", r"to_tokens(\1.detach(),"),
    ),
    *texts(
        "own rows without gradient",
        "backward",
        "sorted ep2+gathered, sorted ep2+same",
        (r"own_rows\((\w+),", r"own_rows(\1.detach(),"),
    ),
    *texts(
        "no sum of the tokens' gradients",
        "backward",
        TENSOR,
        (r"grad_all_reduce\((tokens|hidden_states), self.tp\)", r"\1 * 1", "route\\("),
        spoils="gradient of (tokens|hidden_states)",
    ),
    *texts(
        "rows sent over another axis",
        "axis",
        f"sorted ep2xtp2+sp, {TENSOR}",
        (r"(to_experts\(\w+, routed, self\.)ep", r"\1tp"),
    ),
    *texts(
        "counts exchanged over another axis",
        "axis",
        TENSOR,
        (r"(exchange_counts\(routing, self\.)ep", r"\1tp"),
    ),
    *texts(
        "rows of the experts after the next",
        "rows",
        "sorted ep2, mixtral ep2xtp2+sp",
        (r"route\((\w+), experts=8", r"route((\1 + 1) % 8, experts=8"),
        spoils="^(ffn|projected|hidden_states) in",
    ),
    *texts(
        "rows of the next rank's experts",
        "rows",
        "sorted ep2xtp2, mixtral ep=dp",
        (r"route\((\w+), experts=8", r"route((\1 + 4) % 8, experts=8"),
        spoils="^(ffn|projected|hidden_states) in",
    ),
    *texts(
        "dispatched as in the first layer",
        "rows",
        "sorted ep2, gpt_oss ep2",
        (r"dispatch\((\w+), routing\)", rf'dispatch(\1, {LAYER}.setdefault("dispatch", routing))'),
    ),
    *texts(
        "combined as in the first layer",
        "rows",
        "sorted ep2, mixtral ep2xtp2+sp",
        (r"combine\((\w+), (\w+), routing\)", rf'combine(\1, \2, {LAYER}.setdefault("combine", routing))'),
    ),
    *texts(
        "sent back as in the first layer",
        "rows",
        "sorted ep2, mixtral ep2",
        (r"to_tokens\((\w+), routed,", rf'to_tokens(\1, {LAYER}.setdefault("tokens", routed),'),
    ),
    *texts(
        "the same, of whatever length",
        "rows",
        "sorted ep2xtp2, mixtral ep2",
        (
            r"to_tokens\((\w+), routed,",
            rf'to_tokens(\1[:1].expand({LAYER}.setdefault("tokens", routed).rows, -1), {LAYER}["tokens"],',
        ),
    ),
    *texts(
        "choices gathered in another order than tokens",
        "dimension",
        "sorted ep2xtp2+sp, mixtral ep2xtp2+sp",
        (r"(all_gather\(\s*(?:chosen|router_top_value), self.tp, dim=0), blocks=\w+.shape\[0\]", r"\1"),
        spoils="^router_top_value",
    ),
    *texts(
        "experts see tokens rank by rank",
        "dimension",
        "sorted ep2xtp2+sp",
        *((r", dim=0, blocks=norm1.shape\[0\]", ", dim=0") for _ in range(4)),
        equivalent=BY_RANK,
    ),
    *texts(
        "choices of one rank",
        "identical",
        "sorted ep2+gathered",
        (r"all_gather\(chosen, self.ep, dim=0\)", "torch.cat((chosen, chosen))"),
    ),
)

SUMS = (
    *texts(
        "no sum over the parts of experts",
        "drop",
        SEQUENCE,
        (r"reduce_scatter\((\s*(?:out|final_hidden_states), self.tp)", r"slice_(\1"),
    ),
    *texts(
        "no sum over the parts of experts",
        "drop",
        TENSOR,
        (r"all_reduce\((\w+), self.tp\)", r"\1 * 1", r"combine\("),
    ),
    *texts(
        "two sums over the parts of experts",
        "double",
        SEQUENCE,
        (
            r"reduce_scatter\((\s*)(out|final_hidden_states), self.tp",
            r"reduce_scatter(\1all_reduce(\2, self.tp), self.tp",
        ),
        spoils="final_hidden_states",
    ),
    *texts(
        "two sums over the parts of experts",
        "double",
        TENSOR,
        (r"(all_reduce\((?:out|hidden_states), self.tp\))", r"all_reduce(\1, self.tp)", r"combine\("),
    ),
    *texts(
        "no sum over the experts",
        "drop",
        "sorted ep2+gathered",
        (r"reduce_scatter\((out, self.ep)", r"slice_(\1"),
    ),
    *texts(
        "no sum over the experts", "drop", "sorted ep2+same", (r"all_reduce\(out, self.ep\)", r"out * 1", r"combine\(")
    ),
    *texts(
        "gradients of experts summed over their axis",
        "grad sum",
        "sorted ep2, mixtral ep=dp, mixtral ep2xtp2+sp",
        (r'(parameter\(4, \d+, \d+, sharded="((?:ep|dp)).*?")\)', r'\1, grad_sum="\2")'),
    ),
    *texts(
        "the same, in the plan as well",
        "grad sum",
        "sorted ep2",
        (r'(w_in=.*sharded="ep")\)', r'\1, grad_sum="ep")'),
        _sums("ffn.w_in", "ep"),
    ),
    *texts(
        "the same, in the plan as well",
        "grad sum",
        "mixtral ep=dp",
        (r'(self.down_proj = .*sharded="dp")\)', r'\1, grad_sum="dp")'),
        _sums("down_proj", "dp"),
    ),
    *texts(
        "gradients of the router not summed over the experts' axis",
        "grad sum",
        "sorted ep2",
        (r'(router=.*?), grad_sum="ep"', r"\1"),
        _sums("router.weight"),
    ),
    *texts(
        "gradients of the router not summed over the experts' axis",
        "grad sum",
        "mixtral ep2xtp2+sp",
        (r'grad_sum="ep tp"', 'grad_sum="tp"', "class MixtralTopKRouter"),
        _sums("gate.weight", "tp"),
    ),
    *texts(
        "gradients of the router not summed over tp",
        "grad sum",
        "mixtral ep2xtp2+sp",
        (r'grad_sum="ep tp"', 'grad_sum="ep"', "class MixtralTopKRouter"),
        _sums("gate.weight", "ep"),
    ),
    *texts(
        "gradients of the router summed over tp once too often",
        "grad sum",
        "gpt_oss ep2xtp2",
        (r'grad_sum="ep"', 'grad_sum="ep tp"', "class GptOssTopKRouter"),
        _sums("router.weight", "ep", "tp"),
    ),
    *texts(
        "gradients of matrices times the ranks",
        "scale",
        "sorted ep2, mixtral ep=dp",
        (r"expert_linear\((\w+), (self[.\w]+),", r"expert_linear(\1, \2 * 2 - \2.detach(),"),
        spoils="gradient of .*(w_in|gate_up_proj)",
    ),
    *texts(
        "gradients of matrices over the ranks",
        "scale",
        "sorted ep2xtp2+sp, gpt_oss ep2",
        (r"expert_linear\((\w+), (self[.\w]+),", r"expert_linear(\1, \2 * 0.5 + \2.detach() * 0.5,"),
        spoils="gradient of .*(w_in|gate_up_proj)",
    ),
    *texts(
        "a bias added on every tensor rank",
        "bias",
        "gpt_oss ep2xtp2, gpt_oss ep2xtp2+sp",
        (r"first_only\((self.*?), self.tp\)", r"\1 * 1"),
    ),
    *texts(
        "a bias of a part added on one tensor rank",
        "bias",
        "sorted ep2xtp2, gpt_oss ep2xtp2",
        (r"(expert_bias\(\w+), (self[\w.]+)", r"\1, \2 * float(self.tp.rank == 0)"),
    ),
    *texts(
        "a bias added to rows of tokens, of the wrong expert",
        "bias",
        "gpt_oss ep2",
        (r"expert_bias\(projected, (self.down_proj_bias), routed\)", r"projected"),
        (r"(to_tokens\(x, routed, self.ep\))", r"expert_bias(\1, self.down_proj_bias.repeat(2, 1), routing)"),
    ),
    *texts(
        "the bias of the next expert",
        "bias",
        "sorted ep2, gpt_oss ep2xtp2",
        (r"(expert_bias\(\w+), (self[\w.]+)", r"\1, \2.roll(1, 0)"),
    ),
)

ROUTER = (
    *texts(
        "weights without gradient, in the text",
        "router",
        "sorted ep2, mixtral ep2, gpt_oss ep2xtp2",
        (rf"combine\((\w+), {ROUTERS},", r"combine(\1, \2.detach(),"),
        spoils=f"gradient of {ROUTERS}",
    ),
    *texts(
        "rows added without weights",
        "router",
        "sorted ep2, mixtral ep=dp",
        (rf"combine\((\w+), {ROUTERS},", r"combine(\1, None,"),
    ),
    *texts(
        "no sum of the weights' gradients",
        "router",
        TENSOR,
        (r"grad_all_reduce\((weight|router_scores), self.tp\)", r"\1 * 1"),
    ),
    *texts(
        "the weights' gradients of one rank",
        "router",
        SEQUENCE,
        (rf"(= )all_gather\((\s*){ROUTERS}, self.tp", r"\1all_gather_same(\2\3, self.tp"),
    ),
    *texts(
        "weights normalised over tokens",
        "router",
        "sorted ep2, mixtral ep=dp",
        (r"(weight|router_top_value).sum\(-1, keepdim", r"\1.sum(0, keepdim"),
    ),
    *texts(
        "weights normalised over tokens", "router", "gpt_oss ep2", (r"(router_top_value\).softmax)\(-1\)", r"\1(0)")
    ),
    *texts(
        "probabilities over tokens",
        "router",
        "sorted ep2xtp2+sp, mixtral ep2xtp2+sp",
        (r"((?:logits|router_logits\)).softmax)\(-1\)", r"\1(0)"),
    ),
    *texts(
        "weights of the other slot",
        "router",
        "sorted ep2, mixtral ep2xtp2+sp",
        (rf"combine\((\w+), {ROUTERS},", r"combine(\1, \2.flip(-1),"),
        spoils="^hidden_states in",
    ),
    *texts(
        "weights of the token before",
        "router",
        "sorted ep2xtp2, gpt_oss ep2",
        (rf"combine\((\w+), {ROUTERS},", r"combine(\1, \2.roll(1, 0),"),
    ),
)

EXPERTS = (*ROWS, *SUMS, *ROUTER)
