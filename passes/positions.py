"""Masks and positions as functions of position.

What it does   a value that depends on sizes alone is evaluated symbolically and written with as few ops as it needs; an
               attention mask that turns out to be "keys up to the query" becomes causal attention.
Why            models build masks and positions from dozens of nodes, batch included; none of it depends on the data.
When not       the value has no closed form in the indices; it is then computed as the author wrote it.
"""

from dataclasses import replace

from graphpar.ir.graph import Graph, Node, rebuild
from graphpar.rewrite.evaluate import functions, is_causal
from graphpar.rewrite.passes import Pass
from graphpar.rewrite.positions import places, rewrite


def causal(graph: Graph) -> Graph:
    """Attention whose mask is exactly the causal one says so."""
    known = functions(graph)
    masks = {n for n, f in known.items() if n.rank >= 2 and n.dtype == "bool" and is_causal(f, n.rank)}
    marked = {n for n in graph.nodes if n.op == "sdpa" and n.args[3] in masks}
    originals = iter(graph.nodes)

    def rule(node: Node) -> Node | None:
        if next(originals) not in marked:
            return None
        return replace(node, args=(*node.args[:3], None), attrs={**node.attrs, "causal": True})

    return rebuild(graph, rule)


positions = Pass(whole=lambda graph: rewrite(causal(graph), places(graph)))
