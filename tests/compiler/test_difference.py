"""What a rewrite did is told from the graphs on both sides alone."""

from dataclasses import replace

from graphs import graph, inputs, linear, op, parameter, permute, reshape

from graphpar.ir.difference import difference
from graphpar.ir.graph import rebuild, with_outputs


def chain():
    x, w = inputs("x", 4, 8, dtype="float32"), parameter("w", 6, 8)
    first = linear(x, w)
    return graph(op("relu", op("neg", first, shape=(4, 6)), shape=(4, 6)))


def ops(nodes):
    return [n.op for n in nodes]


def test_the_same_graph_is_no_difference():
    assert difference(chain(), chain()).empty  # nodes of their own, each
    same = chain()
    assert difference(same, same).empty


def test_what_is_put_in_between_is_added_and_nothing_else_changed():
    before = chain()
    after = rebuild(before, lambda n: op("exp", n, shape=n.shape) if n.op == "neg" else None)
    found = difference(before, after)
    assert ops(found.added) == ["exp"] and not found.removed and not found.changed
    assert {n.op: old.op for n, old in found.was.items()}["relu"] == "relu"


def test_what_is_taken_out_is_removed():
    before = chain()
    found = difference(before, rebuild(before, lambda n: n.operands[0] if n.op == "neg" else None))
    assert ops(found.removed) == ["neg"] and not found.added and not found.changed


def test_another_attribute_shape_or_operand_is_a_change_and_told():
    x = inputs("x", 4, 6, dtype="float32")
    before = graph(op("sum", reshape(permute(x, 1, 0), 24), shape=(), dims=(0,)))

    def rule(node):
        if node.op == "sum":
            return replace(node, attrs={"dims": (0,), "keepdim": True})
        return replace(node, shape=(1, 24)) if node.op == "reshape" else None

    found = difference(before, rebuild(before, rule))
    assert {n.op: text for n, text in found.changed.items()} == {
        "reshape": "[24] is [1 24]",
        "sum": "keepdim = True",
    }
    assert not found.added and not found.removed


def test_a_node_that_reads_something_else_is_changed():
    x = inputs("x", 4, dtype="float32")
    a, b = op("exp", x, shape=(4,)), op("log", x, shape=(4,))
    before = graph(op("add", op("neg", a, shape=(4,)), b, shape=(4,)))
    after = rebuild(before, lambda n: replace(n, args=tuple(reversed(n.args))) if n.op == "add" else None)
    assert {n.op: text for n, text in difference(before, after).changed.items()} == {"add": "reads log, neg"}


def test_of_nodes_that_look_alike_those_are_paired_that_read_the_same():
    x = inputs("x", 4, dtype="float32")
    ones = [op("cast", op(word, x, shape=(4,)), shape=(4,)) for word in ("exp", "log", "neg")]
    before = graph(*ones)
    after = with_outputs(before, before.nodes, tuple(ones[1:]))
    found = difference(before, after)
    assert ops(found.removed) == ["exp", "cast"] and found.removed[1] is ones[0]
