"""Mistakes of what a rank adds up or computes: declared sums, biases, the loss, scales, masks, and wrong text."""

from tools.mutants.mutant import Json, Mutant, Text


def _text(
    name: str, kind: str, build: str, *edits: tuple[str, ...] | Json, spoils: str = "", equivalent: str = ""
) -> Mutant:
    """Edits of model.py: (pattern, new) or (pattern, new, behind); and of plan.json."""
    made = tuple(edit if isinstance(edit, Json) else Text(*edit) for edit in edits)
    return Mutant(name, kind, build, made, spoils=spoils, equivalent=equivalent)


def _sums(parameter: str, *axes: str) -> Json:
    """The plan says that the gradients of a parameter are summed over these axes."""
    return Json(
        lambda plan: [
            entry.update(grad_sum=list(axes)) for name, entry in plan["parameters"].items() if name.endswith(parameter)
        ]
    )


SCALE = r"att \* 0\.35355339059327373"
SAME_ANGLE = "queries and keys are permuted alike, and only their products are used"

STATES = (
    _text(
        "norm gradients not summed over tp",
        "grad sum",
        "gpt dp2xtp2+sp",
        (r'grad_sum="dp tp"', 'grad_sum="dp"', "self.ln_1"),
    ),
    _text(
        "the same, in the plan as well",
        "grad sum",
        "gpt dp2xtp2+sp",
        (r'grad_sum="dp tp"', 'grad_sum="dp"', "self.ln_1"),
        _sums("ln_1.weight", "dp"),
    ),
    _text(
        "gradients of an RMS norm not summed over dp",
        "grad sum",
        "llama dp2xtp2+sp",
        (r'grad_sum="dp tp"', 'grad_sum="tp"'),
    ),
    _text(
        "bias gradients not summed over tp",
        "grad sum",
        "gpt dp2xtp2+sp",
        (r'bias=mesh.parameter\(32, grad_sum="dp tp"\)', 'bias=mesh.parameter(32, grad_sum="dp")', "self.proj = "),
    ),
    _text(
        "bias gradients not summed, in the plan as well",
        "grad sum",
        "gpt tp2+sp",
        (r'bias=mesh.parameter\(32, grad_sum="tp"\)', "bias=mesh.parameter(32)", "self.proj = "),
        _sums("proj.bias"),
    ),
    _text(
        "bias gradients summed once too often",
        "grad sum",
        "gpt dp2xtp2",
        (r'(bias=mesh.parameter\(32, grad_sum="dp)"\)', r'\1 tp")'),
    ),
    _text(
        "the same, in the plan as well",
        "grad sum",
        "gpt dp2xtp2",
        (r'(bias=mesh.parameter\(32, grad_sum="dp)"\)', r'\1 tp")'),
        _sums("attn.proj.bias", "dp", "tp"),
    ),
    _text(
        "gradients of the position table not summed",
        "grad sum",
        "gpt dp2xtp2",
        (r'(pos_emb = mesh.parameter\(1, 40, 32), grad_sum="dp"\)', r"\1)"),
    ),
    _text(
        "the same, in the plan as well",
        "grad sum",
        "gpt dp2xtp2",
        (r'(pos_emb = mesh.parameter\(1, 40, 32), grad_sum="dp"\)', r"\1)"),
        _sums("pos_emb"),
    ),
    _text(
        "gradients of positions not summed over data",
        "grad sum",
        "tied dp2xtp2+sp",
        (r"grad_all_reduce\((\w+), self.dp\)", r"\1 * 1"),
        spoils="gradient of (part|pos)",
    ),
    _text(
        "gradients of the tied table not summed",
        "grad sum",
        "tied dp2xtp2+sp",
        (r'(emb = Parameters\(weight=mesh.parameter\(49, 32, sharded="tp"), grad_sum="dp"', r"\1"),
    ),
    _text(
        "the tied table is the head's only",
        "grad sum",
        "tied tp2",
        (r"vocab_embedding\(idx, self.emb.weight", "vocab_embedding(idx, self.emb.weight.detach()"),
        spoils="gradient of emb.weight",
    ),
    _text(
        "gradients of a shared head of keys not summed",
        "grad sum",
        "llama kv2xq2",
        (r"grad_all_reduce\(joined_joined, self.tq\)", "joined_joined * 1"),
    ),
    _text(
        "gradients of a shared head of values not summed",
        "grad sum",
        "llama kv2xq2",
        (r"grad_all_reduce\(xv, self.tq\)", "xv * 1"),
    ),
    _text(
        "gradients of a matrix not summed over data",
        "grad sum",
        "gpt dp2",
        (r'(weight=mesh.parameter\(128, 32), grad_sum="dp"', r"\1"),
    ),
    _text(
        "bias before the sum",
        "bias",
        "gpt dp2xtp2",
        (r"(proj = F.linear\(y, self.proj.weight)\)", r"\1, self.proj.bias)"),
        (r"proj = proj \+ self.proj.bias", "proj = proj * 1"),
    ),
    _text(
        "bias before the sum and after it",
        "bias",
        "gpt dp2xtp2",
        (r"(proj = F.linear\(y, self.proj.weight)\)", r"\1, self.proj.bias)"),
    ),
    _text(
        "bias before the scatter",
        "bias",
        "tied dp2xtp2+sp",
        (r"(down = F.linear\(h, self.down.weight)\)", r"\1, self.down.bias)"),
        (r"down = down \+ self.down.bias", "down = down * 1"),
    ),
    _text(
        "half the bias on each rank",
        "bias",
        "gpt tp2",
        (r"(proj = F.linear\(y, self.proj.weight)\)", r"\1, self.proj.bias * 0.5)"),
        (r"proj = proj \+ self.proj.bias", "proj = proj * 1"),
    ),
    _text(
        "no bias on one rank",
        "bias",
        "gpt tp2",
        (r"proj \+ self.proj.bias", "proj + self.proj.bias * (1 - self.tp.rank)"),
    ),
    _text("the loss divided per rank", "loss", "gpt dp2", (" / count", " / self.count(idx, targets)")),
    _text("a mean of means", "loss", "gpt dp2xtp2+sp", (" / count", " / (2 * self.count(idx, targets))")),
    _text("half the loss", "loss", "gpt dp2xtp2", (" / count", " / count / 2")),
    _text(
        "another label is ignored",
        "loss",
        "gpt dp2xtp2",
        ("ignore_index=-1", "ignore_index=-100"),
        spoils="what it returns|returned value|logits",
    ),
    _text(
        "labels that are not there are counted",
        "loss",
        "gpt dp2xtp2",
        (r"flatten\(\) != -1", "flatten() != -2"),
        spoils="returned value",
    ),
    _text("another scale", "scale", "gpt dp2xtp2", (SCALE, "att * 0.35355")),
    _text(
        "another scale on one rank",
        "scale",
        "gpt dp2xtp2+sp",
        (SCALE, "att * (0.35355339059327373 + 0.01 * self.tp.rank)"),
    ),
    _text(
        "embeddings scaled on one data rank",
        "scale",
        "tied dp2xtp2+sp",
        (r"emb \* 5\.656854249492381", "emb * (5.656854249492381 + 0.001 * self.dp.rank)"),
    ),
    _text(
        "embeddings scaled in single precision", "scale", "tied tp2", (r"emb \* 5\.656854249492381", "emb * 5.6568544")
    ),
    _text("another constant", "scale", "gpt dp2xtp2", ("0.044715", "0.044714")),
    _text("another exponent", "exponent", "gpt tp2", (r"x\.pow\(3\.0\)", "x.pow(2.0)")),
    _text(
        "another exponent on one rank",
        "exponent",
        "gpt dp2xtp2",
        (r"super\(\).__init__\(\)", "super().__init__(); self.r = mesh.rank", "class NewGELU"),
        (r"x\.pow\(3\.0\)", "x.pow(3.0 + self.r // 3)"),
    ),
    _text("an exponent that is nearly right", "exponent", "tied dp2xtp2+sp", (r"\.square\(\)", ".pow(2.000001)")),
    _text(
        "another root on one data rank",
        "exponent",
        "llama dp2xtp2+sp",
        (r"super\(\).__init__\(\)", 'super().__init__(); self.r = mesh.coordinate("dp")', "class RMSNorm"),
        (r"\.rsqrt\(\)", ".pow(-0.5 - 0.0001 * self.r)"),
    ),
    _text(
        "halves of the keys swapped",
        "rotary",
        "llama dp2xtp2+sp",
        (r"torch\.cat\(\((x1 \* cos - x2 \* sin), (x2 \* cos \+ x1 \* sin)\)", r"torch.cat((\2, \1)"),
    ),
    _text(
        "halves of keys and queries swapped",
        "rotary",
        "llama tp2+sp",
        (r"torch\.cat\(\(([^,]*), ([^,]*)\)", r"torch.cat((\2, \1)"),
        (r"(joined_joined = )torch\.cat\(\(([^,]*), ([^,]*)\)", r"\1torch.cat((\3, \2)"),
        equivalent=SAME_ANGLE,
    ),
    _text("keys turn the other way", "rotary", "llama kv2xq2", (r"x1 \* cos - x2 \* sin", "x1 * cos + x2 * sin")),
    _text(
        "cosines of the next position on one rank",
        "rotary",
        "llama dp2xtp2+sp",
        (r"self\.rope_cos\[:tokens\.shape\[1\]\]", "self.rope_cos[self.tp.rank:tokens.shape[1] + self.tp.rank]"),
        spoils="cos|joined",
    ),
    _text("equal masks on parts of the heads", "dropout", "gpt tp2+sp", (r'mesh\.random\("tp"\)', "mesh.random()")),
    _text("equal masks on parts of the batch", "dropout", "gpt dp2", (r'mesh\.random\("dp"\)', "mesh.random()")),
    _text(
        "different masks on replicas",
        "dropout",
        "gpt dp2xtp2",
        (r'(self.random_dp = mesh\.random\("dp")\)', r'\1, "tp")'),
    ),
    _text(
        "masks of one device, not cut over tp",
        "dropout",
        "gpt exact",
        (r"(self.random, cut=\(\(0, self.dp, 1\),) \(1, self.tp, 1\)\)", r"\1)", "proj = proj"),
    ),
    _text(
        "masks of one device, cut in another order",
        "dropout",
        "gpt exact",
        (r"cut=\(\(0, self.dp, 1\), \(1, self.tp, 1\)\)", "cut=((0, self.tp, 1), (1, self.dp, 1))"),
    ),
    _text("less is dropped", "dropout", "gpt exact", (r"(dropout\(proj, 0\.)1", r"\g<1>05")),
    _text("less is dropped on every rank", "dropout", "gpt tp2", (r"(dropout\(proj, 0\.)1", r"\g<1>05")),
    _text("nothing is dropped", "dropout", "tied dp2", (r"dropout_p=0\.2", "dropout_p=0.0")),
    _text("padding takes part", "padding", "gpt dp2xtp2+sp", ("vocab=97", "vocab=98"), spoils="returned value"),
    _text(
        "padding takes part in a tied table", "padding", "tied tp2", ("vocab=97", "vocab=98"), spoils="returned value"
    ),
    _text(
        "rows of another rank",
        "padding",
        "gpt dp2xtp2",
        (r"vocab_embedding\(idx, self.tok_emb.weight, self.tp\)", "F.embedding(idx % 49, self.tok_emb.weight)"),
    ),
    _text("no mask", "mask", "gpt dp2xtp2", (r"position\.unsqueeze\(-1\) < position", "position < position")),
    _text("no fused mask", "mask", "tied dp2xtp2+sp", ("is_causal=True", "is_causal=False")),
    _text("each token sees the next", "mask", "gpt tp2+sp", (r"(unsqueeze\(-1\) < position)", r"\1 - 1")),
    _text(
        "each token sees the next on one rank",
        "mask",
        "gpt tp2+sp",
        (r"(unsqueeze\(-1\) < position)", r"\1 - self.tp.rank"),
    ),
    _text(
        "no token sees itself", "mask", "gpt dp2xtp2+sp", (r"unsqueeze\(-1\) < position", "unsqueeze(-1) <= position")
    ),
    _text(
        "positions one too high",
        "mask",
        "gpt tp2+sp",
        (r"self\.pos_emb\[:, :idx\.shape\[1\]\]", "self.pos_emb[:, 1:idx.shape[1] + 1]"),
    ),
    _text(
        "positions of the first part on every rank",
        "mask",
        "tied dp2xtp2+sp",
        (r"slice_\((\w+), self.tp, dim=0\)", r"\1[:\1.shape[0] // 2]"),
    ),
    _text(
        "float32 inside", "wrong text", "gpt dp2xtp2", (r"x = x \+ resid_drop", "x = (x.float() + resid_drop).double()")
    ),
    _text(
        "one fixed size", "wrong text", "gpt dp2xtp2", (r"(scaled = self.mlp\[1\]\(projected\))", r"\1.view(2, 24, 64)")
    ),
    _text("no program", "wrong text", "gpt dp2xtp2", ("class GPT", "class gpt"), spoils="no class `GPT`"),
    _text("no Python", "wrong text", "gpt dp2xtp2", ("class GPT", "klass GPT")),
)
