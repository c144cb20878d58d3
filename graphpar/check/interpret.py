"""What a program does with its tensors, statement by statement.

Programs are straight: assignments, calls of submodules, loops over layers. Whatever else depends on values, on the rank
or on anything that the text does not say is not followed, and found.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from graphpar.check import choices, collectives, constants, contraction, experts, pointwise, shapes
from graphpar.check.dims import Wrong, length
from graphpar.check.mesh import UNKNOWN, Mesh, Opaque, Unknown
from graphpar.check.operators import BINARY, CONSTANTS, MODULE_DICT, OPAQUE, UNARY
from graphpar.check.program import Deferred, Method, Module, Namespace, Text
from graphpar.check.rules import RULES, Axis, Stream, Trace, applied
from graphpar.check.value import Value

_ = choices, collectives, constants, contraction, experts, pointwise  # their rules are registered


@dataclass(frozen=True)
class Finding:
    """What is wrong, or not followed, in a line of the text."""

    line: int
    column: int
    message: str
    followed: bool  # False: there is no rule, so nothing is known


@dataclass
class Interpreter:
    """Runs a program on values; what is wrong is collected in `findings`, once per place and message.

    `values` are what the lines assign, by line and name; what they return has no name, or a number if it is several.
    """

    text: Text
    trace: Trace
    findings: list[Finding] = field(default_factory=list[Finding])
    values: dict[tuple[int, str], Value] = field(default_factory=dict[tuple[int, str], Value])

    def build(self, cls: str, *given: Any) -> Module:
        """A module and all below it, as its constructor makes them. Raises Wrong if it does not take what is given."""
        module = Module(cls, "")
        definition = self.text.classes[cls]["__init__"]
        names = [a.arg for a in definition.args.args]
        if len(names) != len(given) + 1:
            raise Wrong(f"{cls} takes {', '.join(names[1:])}")
        self._run(definition, dict(zip(names, (module, *given), strict=True)))
        return module

    def make(self, made: Any) -> Module:
        """What a lambda gives. Raises Wrong unless it is a module."""
        module = self._value(made.body, dict(made.scope)) if isinstance(made, Deferred) else made
        if not isinstance(module, Module):
            raise Wrong("a stage is made by `lambda: CLASS(mesh, ..)`")
        return module

    def number(self, text: str, sizes: Mapping[str, int]) -> float:
        """An expression in sizes."""
        return float(self._value(ast.parse(text, mode="eval").body, dict(sizes)))

    def call(self, module: Module, method: str, *args: Any, **kwargs: Any) -> Any:
        """A method of a module. Raises Wrong if it does not take these operands."""
        definition = self.text.classes.get(module.cls, {}).get(method)
        if definition is None:
            raise Wrong(f"{module.path or module.cls} has no {method}")
        names = [a.arg for a in definition.args.args]
        given = dict(zip(names, (module, *args), strict=False)) | kwargs
        if set(given) != set(names) or len(args) >= len(names):
            raise Wrong(f"{module.cls}.{method} takes {', '.join(names[1:])}")
        return self._run(definition, given)

    def _run(self, definition: ast.FunctionDef, scope: dict[str, Any]) -> Any:
        return self._block(definition.body, scope)[1]

    def _block(self, body: list[ast.stmt], scope: dict[str, Any]) -> tuple[bool, Any]:
        for statement in body:
            done, value = self._statement(statement, scope)
            if done:
                return True, value
        return False, None

    def _statement(self, node: ast.stmt, scope: dict[str, Any]) -> tuple[bool, Any]:
        match node:
            case ast.Return(value=value):
                result = None if value is None else self._try(value, scope)
                several = enumerate(result, start=1) if isinstance(result, tuple) else [("", result)]
                self.values |= {(node.lineno, str(i)): v for i, v in several if isinstance(v, Value)}
                return True, result
            case ast.Assign(targets=[target], value=value):
                self._assign(target, self._try(value, scope), scope)
            case ast.For(target=target, iter=values, body=body, orelse=[]):
                for item in self._items(values, scope):
                    self._assign(target, item, scope)
                    done, value = self._block(body, scope)
                    if done:
                        return True, value
            case ast.Expr(value=ast.Constant()):
                pass
            case ast.Expr(value=value):
                self._try(value, scope)
            case _:
                self._found(node, Wrong("a statement of this kind is not followed"), followed=False)
        return False, None

    def _items(self, node: ast.expr, scope: dict[str, Any]) -> list[Any]:
        value = self._try(node, scope)
        return [] if isinstance(value, Unknown) else list(value)

    def _try(self, node: ast.expr, scope: dict[str, Any]) -> Any:
        try:
            return self._value(node, scope)
        except Wrong as wrong:
            self._found(node, wrong, followed=not isinstance(wrong, NotFollowed))
        except (TypeError, ValueError, IndexError, AttributeError, KeyError) as error:
            self._found(node, Wrong(f"this call is not followed: {error}"), followed=False)
        return UNKNOWN

    def _found(self, node: ast.AST, wrong: Wrong, *, followed: bool) -> None:
        finding = Finding(getattr(node, "lineno", 0), getattr(node, "col_offset", 0) + 1, str(wrong), followed)
        if finding not in self.findings:
            self.findings.append(finding)

    def _assign(self, target: ast.expr, value: Any, scope: dict[str, Any]) -> None:
        match target:
            case ast.Name(id=name):
                scope[name] = value
                if isinstance(value, Value):
                    self.values[target.lineno, name] = value
            case ast.Tuple(elts=targets):
                each = [UNKNOWN] * len(targets) if isinstance(value, Unknown) else list(value)
                if len(each) != len(targets):
                    self._found(target, Wrong(f"{len(each)} values for {len(targets)} names"), followed=True)
                    each = [UNKNOWN] * len(targets)
                for one, item in zip(targets, each, strict=True):
                    self._assign(one, item, scope)
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                scope["self"].attributes[name] = value
            case _:
                self._found(target, Wrong("an assignment of this kind is not followed"), followed=False)

    # Expressions

    def _value(self, node: ast.expr, scope: dict[str, Any]) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return self._name(name, scope)
            case ast.Tuple(elts=items) | ast.List(elts=items):
                return tuple(self._value(item, scope) for item in items)
            case ast.Attribute(value=owner, attr=name):
                return self._attribute(self._value(owner, scope), name)
            case ast.Slice(lower=low, upper=high, step=step):
                return slice(*(None if part is None else self._value(part, scope) for part in (low, high, step)))
            case ast.Subscript(value=owner, slice=index):
                return self._item(self._value(owner, scope), self._value(index, scope))
            case ast.UnaryOp(op=op, operand=operand) if type(op) in UNARY:
                word, plain = UNARY[type(op)]
                return self._operator(word, plain, self._value(operand, scope))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in BINARY:
                word, plain = BINARY[type(op)]
                return self._operator(word, plain, self._value(left, scope), self._value(right, scope))
            case ast.Compare(left=left, comparators=[right]):
                return self._operator("compare", _no_branch, self._value(left, scope), self._value(right, scope))
            case ast.Lambda(body=body):
                return Deferred(body, scope)
            case ast.DictComp(key=key, value=value, generators=generators):
                return dict(self._each(ast.Tuple(elts=[key, value]), generators, scope))
            case ast.Dict(keys=keys, values=values):
                return {self._value(k, scope): self._value(v, scope) for k, v in zip(keys, values, strict=True) if k}
            case ast.GeneratorExp(elt=item, generators=generators):
                return self._each(item, generators, scope)
            case ast.Call():
                return self._call(node, scope)
            case _:
                raise NotFollowed("an expression of this kind is not followed")

    def _name(self, name: str, scope: dict[str, Any]) -> Any:
        if name in scope:
            return scope[name]
        if name in self.text.names:
            return self.text.names[name]
        if name in self.text.classes:
            return Namespace(f"class {name}")
        if name in CONSTANTS or name == "super":
            return Namespace(name)
        raise Wrong(f"{name} is not defined here")

    def _attribute(self, owner: Any, name: str) -> Any:
        match owner:
            case Namespace(name=path):
                return Namespace(f"{path}.{name}")
            case Module(cls=cls) if name == "register_buffer" or (cls == MODULE_DICT and name == "values"):
                return owner, name
            case Module() if name in self.text.classes.get(owner.cls, {}):
                return Method(owner, name)
            case Module():
                return Opaque() if name == "training" and name not in owner.attributes else owner.get(name)
            case Value() if name == "shape":
                return tuple(length(dim) for dim in owner.dims)
            case Value() if name in OPAQUE:
                return Opaque()
            case Value() if name in ("T", "mT"):
                return RULES[f".{name}"](owner)
            case Unknown():
                return UNKNOWN
            case Value() | Mesh():
                return owner, name
            case Axis():
                raise NotFollowed(f"the {name} of an axis is not followed: what depends on it may differ between ranks")
            case _:
                raise NotFollowed(f".{name} of this is not followed")

    def _item(self, owner: Any, index: Any) -> Any:
        match owner:
            case Value():
                return UNKNOWN if isinstance(index, Unknown) else applied(shapes.select, self.trace, (owner, index), {})
            case Mesh():
                return owner.axis(index)
            case Module():
                return owner.get(str(index))
            case Unknown():
                return UNKNOWN
            case _:
                return owner[index]

    def _operator(self, word: str, plain: Callable[..., Any], *operands: Any) -> Any:
        if any(isinstance(o, Unknown) for o in operands):
            return UNKNOWN
        if any(isinstance(o, Value) for o in operands):
            return applied(self._rule(word), self.trace, operands, {})
        return plain(*operands)

    def _each(self, item: ast.expr, generators: list[ast.comprehension], scope: dict[str, Any]) -> list[Any]:
        if not generators:
            return [self._value(item, scope)]
        first, *rest = generators
        if first.ifs:
            raise NotFollowed("a condition is not followed")
        found: list[Any] = []
        for value in self._value(first.iter, scope):
            inner = dict(scope)
            self._assign(first.target, value, inner)
            found += self._each(item, rest, inner)
        return found

    def _call(self, node: ast.Call, scope: dict[str, Any]) -> Any:
        function = self._value(node.func, scope)
        args = [self._value(arg, scope) for arg in node.args]
        kwargs: dict[str, Any] = {}
        for keyword in node.keywords:
            value = self._value(keyword.value, scope)
            kwargs |= value if keyword.arg is None else {keyword.arg: value}
        self.trace.line = node.lineno
        match function:
            case (Mesh(), "recompute"):
                return self._again(args)
            case (Mesh() as mesh, name):
                return self._of_mesh(mesh, name, node.lineno, args, kwargs)
            case (Module() as module, "values"):
                return tuple(module.attributes.values())
            case (Module() as module, _):
                module.attributes[args[0]] = args[1]
                return None
            case Unknown():
                return UNKNOWN
            case (Value() as value, name):
                return self._apply(f".{name}", [value, *args], kwargs)
            case Module():
                return self._call_method(function, "forward", args, kwargs)
            case Method(owner=owner, name=name):
                return self._call_method(owner, name, args, kwargs)
            case Namespace(name=name):
                return self._named(name, args, kwargs, scope)
            case _:
                raise NotFollowed("this call is not followed")

    def _again(self, args: list[Any]) -> Any:
        """A method that the backward pass runs again: it computes what it computes."""
        method, *values = args
        if not isinstance(method, Method):
            raise NotFollowed("`mesh.recompute` is given a method of the module")
        return self._call_method(method.owner, method.name, values, {})

    def _call_method(self, module: Module, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        unknown = _unknown((args, tuple(kwargs.values())))
        return UNKNOWN if unknown else self.call(module, name, *args, **kwargs)

    def _of_mesh(self, mesh: Mesh, name: str, line: int, args: list[Any], kwargs: dict[str, Any]) -> Any:
        match name:
            case "parameter":
                return mesh.parameter(line, *args, **kwargs)
            case "buffer":
                return mesh.buffer(line, *args, **kwargs)
            case "random":
                return Stream(frozenset(mesh.live(tuple(args))))
            case _:
                raise NotFollowed(f"mesh.{name} is not followed: what depends on it may differ between ranks")

    def _named(self, name: str, args: list[Any], kwargs: dict[str, Any], scope: dict[str, Any]) -> Any:
        kind, _, cls = name.partition(" ")
        if kind == "class":
            return self.build(cls, *args)
        if name == "Parameters":
            return Module("Parameters", "", dict(kwargs))
        if name == "torch.nn.ModuleList":
            return tuple(args[0])
        if name == MODULE_DICT:
            return Module(MODULE_DICT, "", dict(args[0]))
        if name in CONSTANTS:
            return CONSTANTS[name](*args, **kwargs)
        if name == "super":
            return Namespace("super()")
        if name == "super().__init__":
            scope["self"].attributes |= {name: (args, kwargs)} if args else {}
            return None
        return self._apply(name, args, kwargs)

    def _apply(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if _unknown((args, tuple(kwargs.values()))):
            return UNKNOWN
        return applied(self._rule(name), self.trace, args, kwargs)

    def _rule(self, name: str) -> Callable[..., Any]:
        plain = name.removeprefix("torch.ops.aten.")
        found = next((n for n in (name, f"torch.{plain}", f".{plain}") if n in RULES), None)
        if found is None:
            raise NotFollowed(f"there is no rule for {name.removeprefix('.')}")
        return RULES[found]


class NotFollowed(Wrong):
    """There is no rule for what the text does."""


def _unknown(value: Any) -> bool:
    """Whether it is, or holds, something that is not judged."""
    return any(map(_unknown, value)) if isinstance(value, (tuple, list)) else isinstance(value, Unknown)


def _no_branch(*_: object) -> Any:
    raise NotFollowed("a comparison of numbers is not followed: what depends on it may differ")
