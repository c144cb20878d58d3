"""The forward method of one body."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sympy

from graphpar.codegen.choices import RESULTS, both
from graphpar.codegen.cutting import cut_all
from graphpar.codegen.express import write
from graphpar.codegen.expression import Text
from graphpar.codegen.groups import TOGETHER, groups
from graphpar.codegen.local import Cuts, blocks, symbols
from graphpar.codegen.program import Forward, Line, Program
from graphpar.codegen.sizes import rounds, spell
from graphpar.codegen.tree import Again, Body, Call, Item, LoopCall, Statement, reads
from graphpar.codegen.variables import Variables, kind_of, wishes
from graphpar.ir.graph import Node, Size, plain

AGAIN = "recompute"  # of the mesh: runs a function, and runs it again in the backward pass
CORE = "core"  # the method with the part of attention that is run again
WHOLE = "compute"  # the method with all that a module does, where that is run again
_OWN_LINE = frozenset(
    {
        "linear",
        "sdpa",
        "embedding",
        "layer_norm",
        "rms_norm",
        "cross_entropy",
        "dropout",
        "matmul",
        "softmax",
        "arange",
        "kept",
        "route",
        "dispatch",
        "expert_linear",
        "expert_bias",
        "combine",
    }
)
_SHAPES = frozenset({"reshape", "permute", "unsqueeze", "expand", "slice", "select", "cast", "upcast"})


def forward(body: Body, program: Program, callee: Callable[[Body], str], beside: Forward | None = None) -> Forward:
    """Write the forward method of a body. `callee` gives the attribute path of a child, such as `attn` or `mlp[1]`.

    A method written `beside` another one shares the attributes of their class with it.
    """
    return _Writer(body, program, callee, beside).run()


class NotMeasured(Exception):
    """A size that a body needs, and that no value in it has as a dimension of its own."""

    def __init__(self, path: str, size: str) -> None:
        super().__init__(f"no value in {path or 'the model'} has the size {size}")
        self.path = path
        self.size = size


class _Writer:
    def __init__(self, body: Body, program: Program, callee: Callable[[Body], str], beside: Forward | None) -> None:
        self.body = body
        self.program = program
        self.callee = callee
        self.result = Forward([], [], beside.axes, beside.streams, beside.imports) if beside else Forward([], [])
        self.items = body.items
        self.statement_of = {i.node: k for k, i in enumerate(self.items) if isinstance(i, Statement)}
        self.nested = self._nested()
        self.groups = groups(self.items)
        self.variables = Variables(self._last_use())
        self.now = 0

    # ------------------------------------------------------------ planning

    def _last_use(self) -> dict[Node, int]:
        found: dict[Node, int] = {}
        for k, item in enumerate(self.items):
            at = self._written_at(item, k)
            for value in reads(item):
                found[value] = max(found.get(value, -1), at)
        for value in self.body.outputs:
            found[value] = len(self.items) + 1
        for value in self.body.inputs:
            found.setdefault(value, 0)
        return found

    def _written_at(self, item: Item, k: int) -> int:
        """The statement in which an item ends up: a nested op is written where it is used."""
        while isinstance(item, Statement) and item.node in self.nested:
            (user,) = self.program.users[item.node]
            k = self.statement_of[user]
            item = self.items[k]
        return k

    def _nested(self) -> set[Node]:
        found: set[Node] = set()
        for item in self.items:
            if isinstance(item, Statement) and self._may_nest(item.node):
                found.add(item.node)
        while late := self._out_of_order(found):
            found -= late
        return found

    def _out_of_order(self, nested: set[Node]) -> set[Node]:
        """Nested ops that would run at another time than in the source: gradients would add up in another order."""
        late: set[Node] = set()
        for item in self.items:
            if isinstance(item, Statement) and item.node not in nested:
                order = [self.statement_of[n] for n in _evaluated(item.node, nested)]
                last = self.statement_of[item.node]
                late |= {n for n in _evaluated(item.node, nested) if self.statement_of[n] < last - len(order)}
                if not late and order != sorted(order):
                    late |= set(_evaluated(item.node, nested))
        return late

    def _may_nest(self, node: Node) -> bool:
        users = self.program.users[node]
        if node.op in _OWN_LINE or "forward" in node.attrs or node in self.body.outputs or len(users) != 1:
            return False
        (user,) = users
        once = sum(a is node for a in user.args) == 1
        if not once or user not in self.statement_of or node.op in TOGETHER or "forward" in user.attrs:
            return False
        if user.op == "cross_entropy" and not node.dtype.startswith(("float", "bfloat")):
            return False
        same = node.origin.line == user.origin.line and node.origin.file == user.origin.file
        return same and node.origin.module == user.origin.module and (node.op in _SHAPES or user.op not in _OWN_LINE)

    # ------------------------------------------------------------ writing

    def run(self) -> Forward:
        for value in self.body.inputs:
            self.result.arguments.append(self.variables.give(value, self._wishes(value), -1))
        done: set[Node] = set()
        for k, item in enumerate(self.items):
            self.now = k
            match item:
                case Statement(node) if node in self.nested or node in done:
                    continue
                case Statement(node) if node in self.groups:
                    done |= set(self.groups[node])
                    self._cut(self.groups[node])
                case Statement(node):
                    self._statement(node)
                case Call():
                    self._call(item, f"self.{self.callee(item.body)}(")
                case Again():
                    self._call(item, f"self.{AGAIN}(self.{CORE}, ")
                case LoopCall():
                    self._loop(item)
        self._return()
        return self.result

    def _wishes(self, value: Node) -> list[str]:
        if value.op == "loop_enter":
            leave = next(n for n in self.program.graph.nodes if n.op == "loop_leave" and n.attrs == value.attrs)
            return [w for a in leave.operands for w in wishes(a)]
        if value.op == "loop_leave":
            return [w for a in value.operands for w in wishes(a)]
        found = wishes(value)
        if value.dtype == "routing" or value.op in ("dispatch", "kept"):
            return found
        leaf = value.origin.module.rpartition(".")[2] if value.origin.module != self.body.path else ""
        given = self.variables.names.get(value.operands[0]) if value.operands else None
        kept = [given] if given and (value.op in _SHAPES or "forward" in value.attrs) else []
        if value.op == "slice" and value.operands[0].op in ("buffer", "parameter"):
            kept = wishes(value.operands[0])
        if not found and value.op in _SHAPES:
            return self._wishes(value.operands[0])
        if self._intermediate(value) or (kept and value not in self.statement_of and not given):
            return [*kept, *([leaf] if leaf.isidentifier() else []), *found]
        return [*found, *kept, *([leaf] if leaf.isidentifier() else [])]

    def _intermediate(self, value: Node) -> bool:
        """Whether the author's statement goes on after this op, so that its name is for what follows."""
        line = (value.origin.file, value.origin.line)
        return any(
            (u.origin.file, u.origin.line) == line and u in self.statement_of for u in self.program.users.get(value, ())
        )

    def _statement(self, node: Node) -> None:
        text = write(node, self).text
        name = self.variables.give(node, self._wishes(node), self.now)
        self._line(f"{name} = {text}", node)

    def _line(self, code: str, node: Node) -> None:
        self.result.lines.append(
            Line(code, self.program.shape(node), node.note, origin=node.origin, causes=node.causes)
        )

    def _cut(self, members: list[Node]) -> None:
        text = (both if members[0].op in RESULTS else cut_all)(members[0], self)
        names = [self.variables.give(m, self._wishes(m), self.now) for m in members]
        if self.program.shape(members[0]) == self.program.shape(members[-1]):
            self._line(f"{', '.join(names)} = {text}", members[0])
        else:
            shapes = dict.fromkeys(self.program.shape(m) for m in members)
            self.result.lines.append(Line(f"{', '.join(names)} = {text}", ", ".join(shapes)))

    def _call(self, item: Call | Again, head: str) -> None:
        args = ", ".join(self.operand(v).text for v in item.body.inputs)
        names = [self.variables.give(v, self._wishes(v), self.now) for v in item.body.outputs]
        self.result.lines.append(
            Line(
                f"{', '.join(names)} = {head}{args})",
                ", ".join(self.program.shape(v) for v in item.body.outputs),
                "computed again in backward" if isinstance(item, Again) else "",
            )
        )

    def _loop(self, item: LoopCall) -> None:
        carried: list[str] = []
        for enter, leave in zip(item.enters, item.leaves, strict=True):
            start = self.operand(enter.operands[0]).text
            name = self.variables.give(leave, [start, *self._wishes(leave)], self.now)
            carried.append(name)
            if name != start:
                self.result.lines.append(Line(f"{name} = {start}", self.program.shape(enter)))
        entered = set(item.enters)
        others = dict.fromkeys(v for b in item.bodies for v in b.inputs if v not in entered)
        args = ", ".join([*carried, *(self.operand(v).text for v in others)])
        parts = item.loop.path.removeprefix(f"{self.body.path}." if self.body.path else "")
        word = _member(parts.rpartition(".")[2])
        members = parts if item.loop.first is None else f"{parts}.values()"
        self.result.lines.append(Line(f"for {word} in self.{members}:"))
        self.result.lines.append(
            Line(
                f"{', '.join(carried)} = {word}({args})",
                ", ".join(self.program.shape(n) for n in item.leaves),
                indent=3,
            )
        )

    def _return(self) -> None:
        outputs = self.body.outputs
        names = ", ".join(self.operand(o).text for o in outputs)
        last = self.result.lines[-1] if self.result.lines else None
        if len(outputs) == 1 and last is not None and last.code.startswith(f"{names} = ") and last.indent == 2:
            last.code = f"return {last.code.removeprefix(f'{names} = ')}"
        else:
            self.result.lines.append(Line(f"return {names}"))
        kinds = [kind_of(o) for o in outputs]
        self.result.result = kinds[0] if len(kinds) == 1 else f"tuple[{', '.join(kinds)}]"

    # ------------------------------------------------------------ Scope

    def operand(self, node: Node) -> Text:
        if node in self.nested:
            return write(node, self)
        if node in self.variables.names:
            return Text(self.variables.names[node])
        if node.op in ("parameter", "buffer"):
            return Text(f"self.{attribute(node.attrs['name'], self.body.path)}")
        if node.op == "constant":
            return write(node, self)
        raise KeyError(f"{node} is not known in {self.body.path or 'the model'}")

    def axis(self, names: Sequence[str]) -> str:
        live = tuple(n for n in names if self.program.mesh[n] > 1)
        attr = "_".join(live)
        self.result.axes[attr] = live
        return f"self.{attr}"

    def local(self, node: Node) -> Cuts:
        return self.program.cuts(node)

    def size(self, size: Size, *, of: Node) -> str:
        if isinstance(size, int):
            return str(size)
        found = {s: self._measure(s) for s in symbols(size)}
        value = size.subs({s: v for s, (_, v) in found.items()})
        text, binds = spell(value if rounds(value) else sympy.simplify(value))
        for s, (place, _) in found.items():
            text = text.replace(_stand_in(s).name, place)
        return f"({text})" if binds else text

    def _measure(self, symbol: sympy.Symbol) -> tuple[str, sympy.Expr]:
        """Where a size can be read off in this body, and the symbol in terms of what is read."""
        known = [n for n in self.variables.names if n.op in ("input", "loop_enter")]
        for value in (*known, *self.variables.names):
            if self.variables.holder.get(self.variables.names[value]) is not value:
                continue
            local = self.program.cuts(value)
            for dim, axis in enumerate(value.named):
                if axis.plain and len(axis.product) == 1 and axis.product[0].size == symbol:
                    parts = local.parts(axis.product[0])
                    return f"{self.variables.names[value]}.shape[{dim}]", _stand_in(symbol) * parts
        raise NotMeasured(self.body.path, symbol.name)

    def need(self, name: str) -> str:
        self.result.imports.add(name)
        return name

    def stream(self, node: Node) -> tuple[str, str]:
        view = (*node.operands[0].named[:-1], node.operands[1].named[-2]) if node.op == "sdpa" else node.named
        local = self.program.cuts(node)
        cut: list[str] = []
        names: list[str] = []
        for dim, axis in enumerate(view):
            for factor in axis.factors:
                for mesh_axis in local.by_factor.get(factor.id, ()):
                    names.append(mesh_axis)
                    if self.program.exact:
                        count = blocks(axis, factor.id, local)
                        cut.append(f"({dim}, {self.axis((mesh_axis,))}, {self._blocks(count, node)})")
        live = tuple(a for a in self.program.mesh if a in names)
        first = self.result.streams.get("random", live) == live
        attr = "random" if first else f"random_{'_'.join(live) or 'same'}"
        self.result.streams[attr] = live
        return f"self.{attr}", f"({', '.join(cut)}{',' if len(cut) == 1 else ''})" if cut else ""

    def _blocks(self, count: Size | tuple[Size, ...], node: Node) -> str:
        return str(count) if isinstance(count, tuple) else self.size(count, of=node)

    def device(self) -> str:
        for value, name in self.variables.names.items():
            if self.variables.holder.get(name) is value:
                return f"{name}.device"
        if self.body.path:
            raise NotMeasured(self.body.path, "device")
        return "self.device"


def _evaluated(node: Node, nested: set[Node]) -> list[Node]:
    """The ops nested in a statement, in the order in which Python evaluates them."""
    return [n for a in node.operands if a in nested for n in (*_evaluated(a, nested), a)]


def attribute(name: str, path: str) -> str:
    """How `self` reaches a tensor or module below the module at `path`: `c_attn.weight`, `mlp[0].weight`."""
    rest = plain(name).removeprefix(f"{plain(path)}.") if path else plain(name)
    text = ""
    for part in rest.split("."):
        text += f"[{part}]" if part.isdigit() else f".{part}" if text else part
    return text


def _stand_in(symbol: sympy.Symbol) -> sympy.Symbol:
    return sympy.Symbol(f"local_{symbol.name}", integer=True, positive=True)


def _member(plural: str) -> str:
    """What one member of a list is called."""
    if plural.endswith("s") and len(plural) > 3:
        return plural[:-1]
    return "block"
