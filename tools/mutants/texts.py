"""Mistakes of what moves between ranks: collectives, their axes and dimensions, and what runs backward."""

from tools.mutants.mutant import Mutant, Text

GPT = "class GPT"


def _text(name: str, kind: str, build: str, *edits: tuple[str, ...], spoils: str = "", equivalent: str = "") -> Mutant:
    """Edits of model.py: (pattern, new) or (pattern, new, behind)."""
    return Mutant(name, kind, build, tuple(Text(*edit) for edit in edits), spoils=spoils, equivalent=equivalent)


TOKENS = "the feed-forward works on each token alone: which dimension they are joined along is undone by the scatter"

MOVES = (
    _text("no sum after attention", "drop", "gpt dp2xtp2", (r"all_reduce\(proj, self.tp\)", "proj * 1")),
    _text("no sum after the feed-forward", "drop", "gpt tp2", (r"all_reduce\(projected, self.tp\)", "projected * 1")),
    _text("no sum of the embedding", "drop", "gpt dp2xtp2", (r"all_reduce\(tok_emb, self.tp\)", "tok_emb * 1")),
    _text("no sum of the tied embedding", "drop", "tied tp2", (r"all_reduce\(x, self.tp\)", "x * 1", "class TinyGPT")),
    _text(
        "a sum over one axis of two",
        "drop",
        "llama kv2xq2",
        (r"all_reduce\(x_all_reduce, self.tq\)", "x_all_reduce * 1"),
    ),
    _text("no gather before the head", "drop", "gpt tp2+sp", (r"all_gather\(x, self.tp, dim=1\)", "x * 1", GPT)),
    _text(
        "no sum on one rank",
        "drop",
        "gpt tp2",
        (r"all_reduce\(proj, self.tp\)", r"all_reduce(proj, self.tp) if self.tp.rank else proj"),
        spoils="proj",
    ),
    _text(
        "two sums",
        "double",
        "gpt dp2xtp2",
        (r"all_reduce\((projected), self.tp\)", r"all_reduce(all_reduce(\1, self.tp), self.tp)"),
    ),
    _text(
        "a sum, then a sum and scatter",
        "double",
        "tied dp2xtp2+sp",
        (r"reduce_scatter\((emb)", r"reduce_scatter(all_reduce(\1, self.tp)"),
    ),
    _text(
        "the loss summed over tensor ranks",
        "double",
        "gpt tp2",
        (r"return (vocab_cross_entropy\(.*?\)) / count", r"return all_reduce(\1, self.tp) / count"),
    ),
    _text(
        "a collective for nothing", "double", "gpt dp2xtp2", (r"(x = x \+ resid_drop)", r"\1; all_reduce(x, self.tp)")
    ),
    _text(
        "two moves of the embeddings in another order",
        "reorder",
        "gpt tp2+sp",
        (r"(?s)( +tok_emb = reduce_scatter[^\n]*\n)(.*?)( +\w+ = slice_[^\n]*\n)", r"\3\2\1"),
    ),
    _text(
        "two axes in another order",
        "reorder",
        "llama kv2xq2",
        (
            r"ffn_norm = grad_all_reduce\(ffn_norm, self.tp\)(.*\n.*)self.tq\)",
            r"ffn_norm = grad_all_reduce(ffn_norm, self.tq)\1self.tp)",
        ),
    ),
    _text(
        "two axes in another order on one rank",
        "reorder",
        "llama kv2xq2",
        (
            r"(grad_all_reduce\(ffn_norm), self.tp\)(.*\n.*)self.tq\)",
            r"\1, self.tq if self.tp.rank else self.tp)\2self.tp if self.tp.rank else self.tq)",
        ),
    ),
    _text("a mean for the sum", "mean", "gpt dp2xtp2", (r"(all_reduce\(proj, self.tp\))", r"\1 / 2")),
    _text(
        "a mean of the gradient for its sum",
        "mean",
        "gpt tp2",
        (r"(grad_all_reduce\(ln_2, self.tp\))", r"\1 * 0.5 + ln_2.detach() * 0.5"),
    ),
    _text("a sum for the mean of squares", "mean", "llama dp2xtp2+sp", (r"\.mean\(", ".sum(")),
    _text("a sum for the mean loss", "mean", "gpt dp2", (r" / count", " * 1")),
    _text(
        "a gather for the sum",
        "other collective",
        "gpt dp2xtp2",
        (r"all_reduce\(projected, self.tp\)", "all_gather(projected, self.tp, dim=2)[:, :, :32]"),
    ),
    _text(
        "a sum for the gather",
        "other collective",
        "gpt tp2+sp",
        (r"all_gather\(ln_2, self.tp, dim=1\)", "all_reduce(ln_2, self.tp)"),
    ),
    _text(
        "a sum and a slice for the scatter",
        "other collective",
        "gpt tp2+sp",
        (r"reduce_scatter\(projected, self.tp, dim=1\)", "slice_(all_reduce(projected, self.tp), self.tp, dim=1)"),
    ),
    _text(
        "the other axis", "axis", "gpt dp2xtp2+sp", (r'mesh\["tp"\]', 'mesh["dp"]'), spoils="^(?!the gradient).*attn"
    ),
    _text("both axes", "axis", "gpt dp2xtp2", (r'mesh\["tp"\]', 'mesh["dp", "tp"]'), spoils="proj in blocks.0.attn"),
    _text(
        "one axis twice for two",
        "axis",
        "llama kv2xq2",
        (r"return all_reduce\(w2, self.tp\)", "return all_reduce(w2, self.tq)"),
        spoils="feed_forward|^x in layers.0",
    ),
    _text(
        "the gradient over the other axis",
        "axis",
        "gpt dp2xtp2",
        (r'self.tp = (mesh\["tp"\])', r'self.tp = \1; self.dp = mesh["dp"]'),
        (r"grad_all_reduce\(x, self.tp\)", "grad_all_reduce(x, self.dp)"),
    ),
    _text(
        "gathered along the rows",
        "dimension",
        "gpt tp2+sp",
        (r"all_gather\(ln_2, self.tp, dim=1\)", "all_gather(ln_2, self.tp, dim=0)"),
    ),
    _text(
        "scattered along the rows",
        "dimension",
        "gpt dp2xtp2+sp",
        (r"reduce_scatter\(projected, self.tp, dim=1\)", "reduce_scatter(projected, self.tp, dim=0)"),
    ),
    _text(
        "gathered and scattered along the rows",
        "dimension",
        "gpt tp2+sp",
        (r"all_gather\(ln_2, self.tp, dim=1\)", "all_gather(ln_2, self.tp, dim=0)"),
        (r"reduce_scatter\(projected, self.tp, dim=1\)", "reduce_scatter(projected, self.tp, dim=0)"),
        equivalent=TOKENS,
    ),
    _text(
        "gathered along the width",
        "dimension",
        "llama tp2+sp",
        (r"all_gather\(norm, self.tp, dim=1\)", "all_gather(norm, self.tp, dim=2)"),
    ),
    _text(
        "heads and q, k, v taken for one another",
        "dimension",
        "tied dp2xtp2+sp",
        (r"\(-1, 2, 8\)\)\.permute\(2, 0, 3, 1, 4\)", "(2, -1, 8)).permute(3, 0, 2, 1, 4)"),
    ),
    _text("a softmax over the queries", "dimension", "gpt tp2", (r"att\.softmax\(-1\)", "att.softmax(-2)")),
    _text(
        "heads in the wrong order",
        "dimension",
        "gpt dp2xtp2",
        (r"(k = key\.unflatten\(-1, \(-1, 8\)\))", r"\1.flip(2)"),
    ),
    _text(
        "no sum of the input's gradient", "backward", "gpt dp2xtp2", (r"grad_all_reduce\(ln_2, self.tp\)", "ln_2 * 1")
    ),
    _text("no sum of the head's gradient", "backward", "gpt tp2", (r"grad_all_reduce\(x, self.tp\)", "x * 1", GPT)),
    _text(
        "the input's gradient summed twice",
        "backward",
        "gpt dp2xtp2",
        (r"(grad_all_reduce\()(x), self.tp\)", r"\1\1\2, self.tp), self.tp)"),
    ),
    _text(
        "no gradient into attention", "backward", "gpt tp2+sp", (r"x = x \+ resid_drop", "x = x + resid_drop.detach()")
    ),
    _text(
        "no gradient through one of two axes",
        "backward",
        "llama kv2xq2",
        (r"(norm = )grad_all_reduce\(norm, self.tq\)", r"\1norm * 1", "class Transformer\\("),
    ),
    _text(
        "a gather with the gradient of one rank",
        "identical",
        "gpt dp2xtp2+sp",
        (r"ln_2 = all_gather\(", "ln_2 = all_gather_same("),
    ),
    _text(
        "the same before attention",
        "identical",
        "llama dp2xtp2+sp",
        (r"attention_norm = all_gather\(", "attention_norm = all_gather_same("),
    ),
    _text(
        "the same before the head",
        "identical",
        "tied dp2xtp2+sp",
        (r"norm = all_gather\(norm", "norm = all_gather_same(norm", "class TinyGPT"),
    ),
    _text(
        "a summand taken as whole and sliced",
        "identical",
        "gpt dp2xtp2+sp",
        (r"projected = reduce_scatter\(", "projected = slice_("),
    ),
    _text(
        "attention's summand taken as whole",
        "identical",
        "llama tp2+sp",
        (r"return reduce_scatter\(wo", "return slice_(wo"),
    ),
    _text(
        "positions sliced, their gradient left in part",
        "identical",
        "gpt tp2+sp",
        (r" = slice_\(", " = slice_partial("),
        spoils="gradient of pos_emb",
    ),
    _text(
        "parts added up, the gradient left in part",
        "identical",
        "gpt tp2+sp",
        (r"all_gather\(ln_2, self.tp, dim=1\)", "all_reduce(pad_partial(ln_2, self.tp, dim=1), self.tp)"),
    ),
)
