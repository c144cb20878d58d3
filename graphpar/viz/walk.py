"""From the classes of a model.py and its plan.json to a picture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphpar.codegen.members import as_slice
from graphpar.codegen.routed import FUNCTIONS
from graphpar.errors import Diagnostic, GraphparError
from graphpar.explain.memory import width
from graphpar.viz.picture import Compute, Edge, Exchange, Item, Makers, Module, Picture, Row, Value, Weight, shape
from graphpar.viz.program import Class, Loop, Statement, read_program, separate

COUNT = "count"  # the argument that the loss is divided by


def draw(text: str, plan: Mapping[str, Any]) -> Picture:
    """The picture of a build, from the text of its model.py and its plan.

    Raises GraphparError if a collective of the plan is not in the text, or not in its place.
    """
    return _Walk(read_program(text), plan).picture()


@dataclass
class _Frame:
    """One run through the body of a class: where its items go, and which node made each variable."""

    owner: Class
    path: str  # of the module, with the first member of each loop: names of the plan
    shown: str  # the same with a star
    values: dict[str, Makers]
    plan: list[Mapping[str, Any]]  # the collectives still to come in this body, in order
    items: list[Item] = field(default_factory=list[Item])
    rows: list[Row] = field(default_factory=list[Row])
    open: str = ""  # the id of the node that the next rows belong to
    variables: dict[str, str] = field(default_factory=dict[str, str])

    def close(self) -> None:
        """Make a node of the rows collected so far."""
        if self.rows:
            self.items.append(Compute(self.open, tuple(self.rows)))
            self.rows, self.open = [], ""


_NOTHING: Mapping[str, Any] = {"kinds": (), "bodies": (), "twice": False}  # what a loop without collectives has


class _Walk:
    def __init__(self, classes: Mapping[str, Class], plan: Mapping[str, Any]) -> None:
        self.classes = classes
        self.plan = plan
        self.layers: range | None = None  # of the stage that is drawn
        self.edges: dict[Edge, None] = {}
        self.numbers: dict[str, int] = {}
        self.tensors = {**plan["parameters"], **plan["buffers"]}
        self.names = {alias: n for n, t in self.tensors.items() for alias in (n, *t.get("aliases", ()))}

    def picture(self) -> Picture:
        root = self.classes[self.plan["class"]]
        inputs = tuple(Value(self.new("input"), entry["name"], entry["axes"]) for entry in self.plan["inputs"])
        frame = _Frame(root, "", "", {**{v.name: ((v.id, v.axes),) for v in inputs}, COUNT: ()}, [])
        if self.plan.get("pipeline"):
            makers = self.stages(frame)
        else:
            frame.plan += _opened(self.plan["collectives"])
            makers = self.whole(frame)
        last = next(s for s in reversed(self.last.body) if isinstance(s, Statement))
        result = Value(self.new("result"), "loss", last.axes, last.pending)
        self.flow((m for group in makers for m in group), result.id)
        module = Module(self.new("module"), "", root.name, "", tuple(frame.items))
        read = {edge.tail for edge in self.edges}
        return Picture(self.plan, tuple(i for i in inputs if i.id in read), module, result, tuple(self.edges))

    @property
    def last(self) -> Class:
        """The class that computes the loss."""
        pipeline = self.plan.get("pipeline")
        return self.classes[pipeline["stages"][-1]["class"] if pipeline else self.plan["class"]]

    def stages(self, frame: _Frame) -> list[Makers]:
        """The stages one after another, and what each sends to the next."""
        pipeline = self.plan["pipeline"]
        made: list[Makers] = []
        for s, stage in enumerate(pipeline["stages"]):
            cls = self.classes[stage["class"]]
            received = {name: makers for (name, _), makers in zip(cls.arguments, made, strict=False)}
            self.layers = range(*stage["layers"])
            inner = _Frame(cls, "", "", {**frame.values, **received}, _opened(stage["collectives"]))
            arguments = tuple((name, inner.values[name]) for name, _ in cls.arguments if name in inner.values)
            made = self.whole(inner)
            shown = f"stage {s}, {pipeline['axis']} {stage['rank']}"
            frame.items.append(Module(self.new("module"), shown, cls.name, "", tuple(inner.items), arguments))
            if stage["sends"]:
                made = [self.sent(frame, s, value, m) for value, m in zip(stage["sends"], made, strict=True)]
        return made

    def sent(self, frame: _Frame, s: int, value: Mapping[str, Any], makers: Makers) -> Makers:
        """One value on its way to the next stage, if that is on another rank."""
        pipeline = self.plan["pipeline"]
        here, there = (pipeline["stages"][i]["rank"] for i in (s, s + 1))
        if here == there:
            return makers
        made = self.new("exchange")
        self.flow(makers, made)
        axis = pipeline["axis"]
        elements = "*".join(f"({size})" for size in value["shape"]) or "1"
        frame.items.append(
            Exchange(
                id=made,
                row=Row(0, "", value["axes"], "", (), 0, ""),
                axis=axis,
                forward="send",
                forward_elements=elements,
                backward="send" if value["grad"] else None,
                backward_elements=elements if value["grad"] else None,
                width=width(value["dtype"]),
                twice=False,
                reason=f"stage {s + 1} is on {axis} {there}",
                rule="",
                inside="",
            )
        )
        return ((made, value["axes"]),)

    def new(self, kind: str) -> str:
        self.numbers[kind] = self.numbers.get(kind, 0) + 1
        return f"{kind}{self.numbers[kind]}"

    def flow(self, makers: Iterable[tuple[str, str]], to: str) -> None:
        for maker, axes in makers:
            if maker != to:
                self.edges[Edge(maker, to, axes)] = None

    # ------------------------------------------------------------ a body

    def whole(self, frame: _Frame) -> list[Makers]:
        """Draw a body that no other shares its part of the plan with: all of it must be there."""
        results = self.body(frame)
        if frame.plan:
            raise GraphparError(_not_there(frame.plan, frame.owner.name))
        return results

    def body(self, frame: _Frame) -> list[Makers]:
        """Draw a body into its frame. The nodes behind each of its results."""
        results: list[Makers] = []
        for item in frame.owner.body:
            made = self.loop(frame, item) if isinstance(item, Loop) else self.statement(frame, item)
            results = made if isinstance(item, Statement) and not item.targets else results
        frame.close()
        return results

    def statement(self, frame: _Frame, statement: Statement) -> list[Makers]:
        child = statement.child
        members = frame.owner.children.get(child) if child else None
        if child and members and len(members) == 1:
            made = self.call(frame, statement, child, self.classes[members[0]])
        elif (entry := self.entry(frame, statement)) is not None:
            made = self.exchange(frame, statement, entry)
        else:
            made = self.compute(frame, statement)
        if len(made) != len(statement.targets) and statement.targets:
            made = [tuple(dict.fromkeys(m for group in made for m in group))] * len(statement.targets)
        frame.values.update(zip(statement.targets, made, strict=False))
        return made

    def entry(self, frame: _Frame, statement: Statement) -> Mapping[str, Any] | None:
        """The next collective of the plan, if it is this statement's."""
        expected = frame.plan[0] if frame.plan else None
        if expected is None or "loop" in expected or not statement.functions:
            return None
        return frame.plan.pop(0) if any(_does(f, expected["op"]) for f in statement.functions) else None

    def compute(self, frame: _Frame, statement: Statement) -> list[Makers]:
        if statement.bare:  # computes nothing
            return [self.makers(frame, names) for names in statement.results]
        frame.open = frame.open or self.new("compute")
        self.flow(self.makers(frame, statement.reads), frame.open)
        frame.rows.append(self.row(frame, statement))
        return _made(frame.open, statement)

    def exchange(self, frame: _Frame, statement: Statement, entry: Mapping[str, Any]) -> list[Makers]:
        frame.close()
        made = self.new("exchange")
        self.flow(self.makers(frame, statement.reads), made)
        function = next(f for f in statement.functions if _does(f, entry["op"]))
        rule = entry.get("rule")
        frame.items.append(
            Exchange(
                id=made,
                row=self.row(frame, statement),
                axis=entry["axis"],
                forward=entry["forward"],
                forward_elements=entry["forward_elements"],
                backward=entry["backward"],
                backward_elements=entry["backward_elements"],
                width=width(entry["dtype"]),
                twice=entry["twice"],
                reason=entry["reason"],
                rule=f"{rule['text']}, line {rule['line']} of the spec" if rule else "",
                entry=entry.get("entry", entry),
                inside=function if statement.child != function or function.startswith(("vocab_", "split_")) else "",
            )
        )
        return _made(made, statement)

    def row(self, frame: _Frame, statement: Statement, title: str = "") -> Row:
        weights = tuple(w for path in statement.selves if (w := self.weight(frame, path)))
        return Row(statement.line, statement.code, statement.axes, statement.pending, weights, 0, title)

    def weight(self, frame: _Frame, path: str) -> Weight | None:
        name = self.names.get(f"{frame.path}.{path}" if frame.path else path)
        if name is None:
            return None
        tensor = self.tensors[name]
        return Weight(path, name, tensor["axes"], tuple(tensor["local_shape"]), tuple(tensor["shape"]))

    def makers(self, frame: _Frame, names: Iterable[str]) -> Makers:
        return tuple(dict.fromkeys(m for name in names for m in frame.values.get(name, ())))

    # ------------------------------------------------------------ modules

    def call(self, frame: _Frame, statement: Statement, child: str, cls: Class) -> list[Makers]:
        if self.is_leaf(cls, frame.plan):
            return self.inlined(frame, statement, child, cls)
        frame.close()
        inner = self.enter(frame, statement, child, child, cls, frame.plan)
        return self.module(frame, inner, "")

    def enter(
        self, frame: _Frame, statement: Statement, path: str, shown: str, cls: Class, plan: list[Mapping[str, Any]]
    ) -> _Frame:
        """The frame of a child's body; its arguments are the variables of the call, in order."""
        call = statement.code.partition("(")[2]
        arguments = [self.makers(frame, [name]) for name in _arguments(call)]
        given = {name: makers for (name, _), makers in zip(cls.arguments, arguments, strict=False)}
        join = lambda a, b: f"{a}.{b}" if a else b  # noqa: E731
        return _Frame(cls, join(frame.path, path), join(frame.shown, shown), given, plan)

    def module(self, frame: _Frame, inner: _Frame, members: str) -> list[Makers]:
        made, arguments = self.new("module"), tuple(inner.values.items())
        results = self.body(inner)
        frame.items.append(Module(made, inner.shown, inner.owner.name, members, tuple(inner.items), arguments))
        return results

    def is_leaf(self, cls: Class, plan: Sequence[Mapping[str, Any]]) -> bool:
        """Whether a module neither calls others nor communicates: it is written into its caller."""
        following = plan[0].get("op") if plan else None
        functions = {f for s in cls.body if isinstance(s, Statement) for f in s.functions}
        talks = following is not None and any(_does(f, following) for f in functions)
        return not cls.children and not talks and all(isinstance(s, Statement) for s in cls.body)

    def inlined(self, frame: _Frame, statement: Statement, child: str, cls: Class) -> list[Makers]:
        frame.open = frame.open or self.new("compute")
        self.flow(self.makers(frame, statement.reads), frame.open)
        frame.rows.append(self.row(frame, statement, title=cls.name))
        inner = self.enter(frame, statement, child, child, cls, [])
        for item in cls.body:
            if isinstance(item, Statement) and not item.bare:
                row = self.row(inner, item)
                weights = tuple(Weight(f"{child}.{w.name}", w.full_name, w.axes, w.here, w.whole) for w in row.weights)
                frame.rows.append(Row(row.line, row.code, row.axes, row.pending, weights, 1))
        return _made(frame.open, statement)

    def loop(self, frame: _Frame, loop: Loop) -> list[Makers]:
        """A folded loop: each kind of member once, one after another."""
        frame.close()
        members, first, whole = self.members(frame, loop.over)
        entry = frame.plan.pop(0) if frame.plan and "loop" in frame.plan[0] else _NOTHING
        for cls in dict.fromkeys(members):
            at = [i for i, name in enumerate(members) if name == cls]
            plan = _opened(entry["bodies"][entry["kinds"][at[0]]], twice=entry["twice"]) if entry["kinds"] else []
            for statement in loop.body:
                indices = [first + i for i in at]
                star = whole and len(at) == len(members)
                shown = f"{loop.over}.*" if star else f"{loop.over}{as_slice(indices, len(members) if whole else None)}"
                inner = self.enter(frame, statement, f"{loop.over}.{indices[0]}", shown, self.classes[cls], plan)
                made = self.module(frame, inner, f"× {len(at)}" if len(at) > 1 else "")
                frame.values.update(zip(statement.targets, made, strict=False))
            if plan:
                raise GraphparError(_not_there(plan, cls))
        return []

    def members(self, frame: _Frame, over: str) -> tuple[Sequence[str], int, bool]:
        """The classes of a list's members, the index of the first, and whether these are all: a stage has a part."""
        members = frame.owner.children[over]
        path = f"{frame.path}.{over}" if frame.path else over
        if self.layers is None or path != self.plan["pipeline"]["layers"]:
            return members, 0, True
        every = members * len(self.layers) if len(members) == 1 else members
        return every, self.layers.start, False


def _made(node: str, statement: Statement) -> list[Makers]:
    """Each result of a statement, as made by a node."""
    count = max(len(statement.targets), len(statement.results))
    axes = separate(shape(statement.axes, statement.pending))
    return [((node, text),) for text in (axes if len(axes) == count else [""] * count)]


def _opened(entries: Sequence[Mapping[str, Any]], *, twice: bool = False) -> list[Mapping[str, Any]]:
    """A list of its own of what runs forward; `twice` is what is run again in the backward pass."""
    found: list[Mapping[str, Any]] = []
    for entry in entries:
        found += (
            _opened(entry["again"], twice=True) if "again" in entry else [{"twice": twice, "entry": entry, **entry}]
        )
    return found


def _not_there(plan: Sequence[Mapping[str, Any]], owner: str) -> Diagnostic:
    entry = plan[0]
    what = f"the loop over {entry['loop']}" if "loop" in entry else f"{entry['op']} over {entry['axis']}"
    message = f"{what} of plan.json has no line in {owner}, or not in its place, so that it cannot be drawn"
    return Diagnostic("not-the-plan", None, message, fix="graphpar check BUILD says what is wrong with it")


def _does(function: str, op: str) -> bool:
    """Whether a function of the runtime is what the plan calls `op`: `slice_`, `to_experts`, `vocab_cross_entropy`."""
    return function in (op, f"{op}_", f"split_{op}", f"vocab_{op}", *FUNCTIONS.get(op, ()))


def _arguments(call: str) -> list[str]:
    """The variables between the brackets of a call of a module: generated code passes nothing else."""
    inside = call.rpartition(")")[0]
    return [part.strip() for part in inside.split(",") if part.strip()]
