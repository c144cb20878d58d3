"""An exported program as a graph."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from graphpar.capture.aten.call import Call, is_sequence, other, simplify_size
from graphpar.capture.aten.table import TABLE
from graphpar.capture.locate import assigned, frame
from graphpar.capture.updates import owner, replaced, root
from graphpar.ir.graph import Module, Node, Origin
from graphpar.ir.graph import Tensor as TensorInfo

_DROPPED = {"aten._assert_tensor_metadata.default", "aten.sym_constrain_range_for_size.default"}


class Unsupported(Exception):
    """Something in the model that no graph can say. `kind` is a short word, `name` what it is about."""

    def __init__(self, kind: str, name: str, origin: Origin) -> None:
        super().__init__(f"{kind}: {name} at {origin}")
        self.kind, self.name, self.file, self.line = kind, name, origin.file, origin.line


@dataclass(frozen=True)
class Assumption:
    """A condition on batch and seq that the model or its export checks."""

    condition: Any
    file: str
    line: int


@dataclass(frozen=True)
class BlockCall:
    """One member's run of a module list, as translated: its site, what went in, what came out, and its body."""

    site: int
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    body_inputs: tuple[Node, ...] = ()
    body_outputs: tuple[Node, ...] = ()


@dataclass
class Translation:
    """All nodes in program order, the calls of repeated blocks, and the model's outputs."""

    nodes: list[Node] = field(default_factory=list[Node])
    calls: list[BlockCall] = field(default_factory=list[BlockCall])
    outputs: list[Any] = field(default_factory=list[Any])
    assumptions: list[Assumption] = field(default_factory=list[Assumption])


def translate(program: ExportedProgram, model: nn.Module, sizes: Mapping[sympy.Expr, sympy.Expr]) -> Translation:
    """Translate every node; `sizes` renames the symbols of the export."""
    walker = _Walker(program, sizes)
    for node in program.graph.nodes:
        walker.visit(node)
    return walker.result


class _Walker:
    def __init__(self, program: ExportedProgram, sizes: Mapping[sympy.Expr, sympy.Expr]) -> None:
        self.program = program
        self.sizes = sizes
        self.values: dict[fx.Node, Any] = {}
        self.result = Translation()
        self.specs = {s.arg.name: s for s in program.graph_signature.input_specs if hasattr(s.arg, "name")}
        self.frames: dict[int, tuple[Node, ...]] = {}
        self.known: set[Node] = set()
        self.module = ""

    def visit(self, node: fx.Node) -> None:
        self.module = self.origin(node).module if node.op == "call_function" else ""
        match node.op:
            case "placeholder":
                self.values[node] = self.placeholder(node)
            case "call_function":
                self.values[node] = self.call(node)
            case "get_attr":  # the graph of a region
                self.values[node] = getattr(node.graph.owning_module, str(node.target))
            case "output":
                self.result.outputs = list(self.read(node.args[0]))
            case _:
                raise NotImplementedError(f"{node.op} {node.target}")

    def placeholder(self, node: fx.Node) -> Any:
        spec = self.specs.get(node.name)
        value = node.meta.get("val")
        if not isinstance(value, Tensor) or spec is None:
            return value
        shape, dtype = self.shape(value), _dtype(value)
        match spec.kind:
            case InputKind.PARAMETER:
                return self.add(Node("parameter", (), {"name": spec.target}, shape, dtype))
            case InputKind.BUFFER:
                return self.add(Node("buffer", (), {"name": spec.target}, shape, dtype))
            case InputKind.CONSTANT_TENSOR:
                constant = self.program.constants[str(spec.target)]
                data = constant.tolist() if isinstance(constant, Tensor) else None
                return self.add(Node("constant", (), {"value": data}, shape, dtype))
            case _:
                return self.add(Node("input", (), {"name": node.name}, shape, dtype))

    def call(self, node: fx.Node) -> Any:
        target = str(node.target)
        args = self.read(node.args)
        if target == "<built-in function getitem>":
            return args[0][args[1]]
        if target in _DROPPED:
            return None
        if target == "aten._assert_scalar.default":
            origin = self.origin(node)
            self.result.assumptions.append(Assumption(args[0], origin.file, origin.line))
            return None
        value = node.meta.get("val")
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool)):
            return self.scalar(value)
        if target.startswith("graphpar."):
            return self.marker(node, target, args)
        if target == "wrap_with_set_grad_enabled":
            return self.without_gradient(node, args)
        if not isinstance(node.target, torch._ops.OpOverload):
            kind = "autocast-region" if target == "wrap_with_autocast" else "higher-order"
            raise Unsupported(kind, target, self.region_origin(node, args))
        return self.tensor_call(node, target, args, value)

    def without_gradient(self, node: fx.Node, args: Any) -> tuple[Any, ...]:
        """The content of a region in which gradients are turned off: no gradient flows out of it."""
        enabled, region, *operands = args
        if enabled:
            raise Unsupported("higher-order", "torch.enable_grad", self.region_origin(node, args))
        inputs = [n for n in region.graph.nodes if n.op == "placeholder"]
        self.values.update(zip(inputs, operands, strict=True))
        results: list[Any] = []
        for inner in region.graph.nodes:
            if inner.op == "output":
                results = list(self.read(inner.args[0]))
            elif inner.op != "placeholder":
                self.visit(inner)
        return tuple(self.detached(x) if isinstance(x, Node) else x for x in results)

    def detached(self, x: Node) -> Node:
        """The same value without its gradient."""
        carries = x.dtype.startswith(("float", "bfloat"))
        return self.add(Node("detach", (x,), {}, x.shape, x.dtype, x.origin)) if carries else x

    def region_origin(self, node: fx.Node, args: Any) -> Origin:
        """Where a region stands: at its first operation."""
        graphs = [a.graph for a in args if isinstance(a, fx.GraphModule)]
        inside = [n for graph in graphs for n in graph.nodes if n.op == "call_function"]
        return self.origin(inside[0] if inside else node)

    def tensor_call(self, node: fx.Node, target: str, args: Any, value: Any) -> Any:
        many = isinstance(value, (tuple, list))
        parts = tuple((self.shape(v), _dtype(v)) for v in value) if many else ()
        shape, dtype = ((), "") if many else (self.shape(value), _dtype(value))
        inplace = target.split(".")[1].endswith("_") and not target.split(".")[1].endswith("__")
        name = target.replace("_.", ".", 1) if inplace else target
        base = self.check_in_place(args[0], name, node) if inplace else None
        call = Call(name, tuple(args), self.read(node.kwargs), shape, dtype, self.origin(node), parts)
        result = TABLE.get(name, other)(call)
        for new in result if isinstance(result, tuple) else (result,):
            self.add(new)
        if base is not None and isinstance(result, Node):
            self.values[base] = self.add(replaced(self.values[base], args[0], result))
        elif inplace and isinstance(node.args[0], fx.Node):
            self.values[node.args[0]] = result
        return result

    def check_in_place(self, x: Any, name: str, node: fx.Node) -> fx.Node | None:
        """An update in place is the new value from there on; of a buffer, or of most views, it would be lost.

        Of a slice it is a new value of what the slice is of, which is returned.
        """
        base, origin = root(x), self.origin(node)
        if isinstance(base, Node) and base.op in ("buffer", "parameter"):
            raise Unsupported(f"{base.op}-updated", base.attrs["name"], origin)
        outside = node.graph is not self.program.graph and getattr(node.args[0], "op", "") == "placeholder"
        own = owner(node, self.values) if base is not x else None
        if outside or (base is not x and own is None):
            raise Unsupported("in-place-on-view", name.split(".")[1], origin)
        return own

    def marker(self, node: fx.Node, target: str, args: Any) -> tuple[Node, ...]:
        values, site = tuple(args[0]), args[1]
        if target.startswith("graphpar.enter"):
            made = tuple(
                self.add(Node("enter", (v,), {"site": site}, v.shape, v.dtype, self.origin(node))) for v in values
            )
            self.frames[site] = made
            return made
        shapes = [self.shape(v) for v in node.meta["val"]]
        made = tuple(
            self.add(Node("leave", values, {"site": site, "index": i}, shape, _dtype(v), self.origin(node)))
            for i, (shape, v) in enumerate(zip(shapes, node.meta["val"], strict=True))
        )
        if target.startswith("graphpar.leave"):
            entered = self.frames[site]
            inputs = tuple(e.operands[0] for e in entered)
            self.result.calls.append(BlockCall(site, inputs, made, entered, values))
        else:
            self.result.calls.append(BlockCall(site, values, made))
        return made

    def add(self, node: Node) -> Node:
        if node not in self.known:
            self.known.add(node)
            for operand in node.operands:
                self.add(operand)
            self.result.nodes.append(node)
        return node

    def read(self, value: Any) -> Any:
        if isinstance(value, fx.Node):
            return self.visible(self.values[value])
        if isinstance(value, dict):
            return {k: self.read(v) for k, v in value.items()}
        if is_sequence(value):
            return [self.read(v) for v in value]
        if isinstance(value, torch.dtype):
            return str(value).removeprefix("torch.")
        return value

    def visible(self, value: Any) -> Any:
        """A cast that changes nothing gives back the same tensor, so the export shows it to every later reader of that
        tensor; only the module that asked for the cast, and those it calls, mean it."""
        while isinstance(value, Node) and value.op == "upcast":
            asked = value.origin.module
            if asked == "" or self.module == asked or self.module.startswith(f"{asked}."):
                break
            (value,) = value.operands
        return value

    def scalar(self, value: Any) -> Any:
        if isinstance(value, torch.SymInt):
            return simplify_size(value.node.expr.xreplace(dict(self.sizes)))
        if isinstance(value, (torch.SymFloat, torch.SymBool)):
            return value.node.expr.xreplace(dict(self.sizes))
        return value

    def shape(self, value: Tensor) -> tuple[Any, ...]:
        return tuple(self.scalar(s) if isinstance(s, torch.SymInt) else int(s) for s in value.shape)

    def origin(self, node: fx.Node) -> Origin:
        stack: Mapping[str, tuple[str, Any]] = node.meta.get("nn_module_stack") or {}
        file, line = frame(node.meta.get("stack_trace"))
        return Origin(_call_path(stack), file, line, assigned(file, line) if file else ())


def _call_path(stack: Mapping[str, tuple[str, Any]]) -> str:
    """The path of the module that runs, each part with the number of the call if it is not the first: `drop@1`."""
    path = list(stack.values())[-1][0] if stack else ""
    if not path or path.startswith("_empty"):
        return ""
    parts = path.split(".")
    for key, (outer, _) in stack.items():
        call = key.rpartition("@")[2] if "@" in key else ""
        depth = len(outer.split(".")) - 1
        if call.isdigit() and outer and depth < len(parts):
            parts[depth] += f"@{call}"
    return ".".join(parts)


def _dtype(value: Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")


def modules(model: nn.Module, hints: Callable[[str], str] = lambda path: "") -> dict[str, Module]:
    """Every module of the source by path."""
    return {
        path: Module(path, type(m).__name__, type(m).__module__, hints(path))
        for path, m in model.named_modules(remove_duplicate=False)
    }


def tensors(model: nn.Module) -> dict[str, TensorInfo]:
    """Every parameter and buffer of the source, under its first name, with all its other names."""
    names: dict[int, list[str]] = {}
    for name, p in (*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)):
        names.setdefault(id(p), []).append(name)
    persistent = set(model.state_dict(keep_vars=True))
    found: dict[str, TensorInfo] = {}
    for name, p in (*model.named_parameters(), *model.named_buffers()):
        aliases = tuple(n for n in names[id(p)] if n != name)
        found[name] = TensorInfo(
            name, tuple(int(s) for s in p.shape), _dtype(p), p.requires_grad, name in persistent, aliases
        )
    return found


def aliases(found: Mapping[str, TensorInfo]) -> dict[str, str]:
    """From every name of a tensor to its first one."""
    return {alias: name for name, t in found.items() for alias in (name, *t.aliases)}


def flatten(values: Sequence[Any]) -> list[Node]:
    """The tensors among the outputs."""
    return [v for v in values if isinstance(v, Node)]
