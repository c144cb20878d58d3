"""What to call a value: the author's own word, as long as nothing else that is still needed has it."""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Mapping

from graphpar.ir.graph import Node

_WORDS: Mapping[str, str] = {
    "arange": "position",
    "sdpa": "attended",
    "cat": "joined",
    "argmax": "at",
    "argmin": "at",
    "slice": "part",
    "piece": "part",
    "segment": "part",
    "softmax": "weights",
    "linear": "projected",
    "matmul": "product",
    "embedding": "embedded",
    "cross_entropy": "loss",
    "layer_norm": "normed",
    "rms_norm": "normed",
    "upcast": "wide",
    "mul": "scaled",
    "where": "chosen",
    "le": "mask",
    "and": "mask",
    "expert_linear": "projected",
    "combine": "combined",
    "grouped_matmul": "product",
    "histc": "counts",
}
_OURS = {"dispatch": "rows", "kept": "taken"}  # of a mixture of experts: no word of the author's stands for it
# What a generated module imports or refers to.
RESERVED = frozenset(
    "self torch F nn mesh Tensor Mesh Parameters Stages attention dropout upcast vocab_embedding vocab_cross_entropy "
    "grouped_matmul split_layer_norm split_rms_norm split_softmax all_gather all_gather_same all_reduce all_reduce_max "
    "all_to_all grad_all_reduce reduce_scatter slice_ slice_partial pad_partial first_only Routing route dispatch kept "
    "capacity "
    "combine expert_linear expert_bias to_experts to_tokens exchange_counts own_counts own_rows all_rows".split()
)


class Variables:
    """The names that are taken, and until when."""

    def __init__(self, last_use: Mapping[Node, int]) -> None:
        self.last_use = last_use
        self.names: dict[Node, str] = {}
        self.holder: dict[str, Node] = {}

    def give(self, node: Node, wishes: Iterable[str], now: int) -> str:
        """Name a value made by statement `now`: the first wish that is free by then."""
        for wish in self._more(wishes, node):
            if self.free(wish, now):
                self.names[node] = wish
                self.holder[wish] = node
                return wish
        raise AssertionError("the wishes never end")

    def free(self, name: str, now: int) -> bool:
        """Whether no value that is needed after statement `now` has the name."""
        held = self.holder.get(name)
        return held is None or self.last_use.get(held, -1) <= now

    def _more(self, wishes: Iterable[str], node: Node) -> Iterable[str]:
        found = [
            w
            for w in dict.fromkeys(wishes)
            if w.strip("_").isidentifier() and not keyword.iskeyword(w) and w not in RESERVED
        ]
        yield from found
        base = found[0] if found else _WORDS.get(node.op, "x")
        for word in (_WORDS.get(node.op, "x"), f"{base}_{_WORDS.get(node.op, node.op)}"):
            if word not in RESERVED:
                yield word
        yield from (f"{base}_{letter}" for letter in "abcdefghijklmnopqrstuvwxyz")
        yield from (f"{base}_{a}{b}" for a in "abcdefghijklmnopqrstuvwxyz" for b in "abcdefghijklmnopqrstuvwxyz")


def wishes(node: Node) -> list[str]:
    """The author's names for a value, or those of a mixture of experts, which the author need not have had."""
    if node.dtype == "routing":
        return ["routing" if node.op == "route" else "routed"]
    if node.op in _OURS:
        return [_OURS[node.op]]
    names = list(node.origin.names)
    if node.op in ("piece", "segment", "select") and len(names) > 1 and len(names) > node.attrs["index"]:
        names = [names[node.attrs["index"]]]
    if "part" in node.attrs and len(names) > max(1, node.attrs["part"]):
        names = [names[node.attrs["part"]]]
    if node.op in ("parameter", "buffer", "input") and "received" not in node.attrs:
        names = [str(node.attrs["name"]).rpartition(".")[2]]
    return [name for name in names if name != "_"]


def kind_of(value: Node) -> str:
    """The type of a value in a program."""
    return "Routing" if value.dtype == "routing" else "Tensor"
