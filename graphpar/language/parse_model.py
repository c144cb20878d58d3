"""The sections of a spec that speak about the model: `model`, `dims`, `names`, `ops`."""

from __future__ import annotations

import re

from graphpar.errors import GraphparError, Note, Span, any_of, did_you_mean
from graphpar.language.reader import Mapping, Node, Scalar
from graphpar.language.scalars import Problems, data, integer, named_entries, section, word
from graphpar.language.schema import DimSpec, InputSpec, ModelSpec, NameRule, OpRule
from graphpar.language.selectors import Selector, parse_selectors
from graphpar.notation import NAME_PATTERN, Segment, Tensor, parse_axis, parse_tensor

DTYPES = ("int64", "int32", "bool", "float32", "float64", "bfloat16", "float16")
_INPUT = re.compile(r"(?P<dtype>\w*)(?P<open>\[)(?P<axes>[^\[\]]*)\]")
_AXIS = re.compile(rf"\s*(?P<name>{NAME_PATTERN})\s*=\s*(?P<size>\d+)\s*")
_INPUT_FORM = "int64[batch=8, seq=1024]"


def parse_model(node: Node, problems: Problems) -> ModelSpec:
    """`{object: GPT, args: {..}, inputs: {idx: 'int64[batch=8, seq=1024]'}, loss: loss}`."""
    found = section(node, "`model`", ("object", "args", "inputs", "loss"), problems)
    given = named_entries(found["args"][1], "`args`", problems) if "args" in found else ()
    args = {key.text: data(value, problems) for key, value in given}
    inputs = [
        read
        for key, value in (named_entries(found["inputs"][1], "`inputs`", problems) if "inputs" in found else ())
        if (read := _parse_input(key, value, problems))
    ]
    target = word(found["object"][1], "the name of a class or function", problems) if "object" in found else None
    loss = word(found["loss"][1], "the name of an output", problems) if "loss" in found else None
    return ModelSpec(target, args, tuple(inputs), loss, node.span)


def parse_dims(node: Node, problems: Problems) -> dict[str, DimSpec]:
    """`{d_ff: 3072, d_model: {size: 768, is: (heads d_head), multiple_of: 64}}`."""
    dims: dict[str, DimSpec] = {}
    for key, value in named_entries(node, "`dims`", problems):
        if dimension_name(key, problems):
            dims[key.text] = _parse_dim(key, value, problems)
    return dims


def parse_names(node: Node, problems: Problems) -> tuple[NameRule, ...]:
    """`{c_proj.weight: d_model (heads d_head)}`."""
    rules: list[NameRule] = []
    for key, value in named_entries(node, "`names`", problems):
        text = word(value, "the axes of a parameter, such as `d_model (heads d_head)`,", problems)
        selector = _one_selector(key, problems)
        axes = _axes(text, value, problems) if text is not None and isinstance(value, Scalar) else None
        if selector and axes:
            rules.append(NameRule(selector, axes, key.span, value.span))
    return tuple(rules)


def parse_ops(node: Node, problems: Problems) -> dict[str, OpRule]:
    """`{"mylib::op": "b h s d -> b h s d ; whole d"}`; the rule itself is read by the op table."""
    rules: dict[str, OpRule] = {}
    for key, value in named_entries(node, "`ops`", problems):
        text = word(value, "the axis rule of an op", problems)
        if text is not None and isinstance(value, Scalar):
            rules[key.text] = OpRule(key.text, text, key.span, value.at(0, len(text)))
    return rules


def dimension_name(key: Scalar, problems: Problems) -> bool:
    """Whether `key` can name a dimension; notes a problem if not."""
    if re.fullmatch(NAME_PATTERN, key.text):
        return True
    why = "a name has lower-case letters, digits and _, then perhaps .0 or .half"
    problems.add("bad-name", key.span, f"`{key.text}` cannot be the name of a dimension", why=why)
    return False


def _parse_dim(key: Scalar, value: Node, problems: Problems) -> DimSpec:
    if not isinstance(value, Mapping):
        size = integer(value, f"the size of `{key.text}`", problems)
        return DimSpec(key.text, size, span=key.span)
    found = section(value, f"`{key.text}`", ("size", "is", "multiple_of"), problems)
    size = integer(found["size"][1], f"the size of `{key.text}`", problems) if "size" in found else None
    multiple = (
        integer(found["multiple_of"][1], "a number that divides it", problems) if "multiple_of" in found else None
    )
    equals = _segment(found["is"][1], problems) if "is" in found else None
    return DimSpec(key.text, size, equals, multiple, key.span)


def _segment(node: Node, problems: Problems) -> Segment | None:
    text = word(node, "a product of dimensions, such as `(heads d_head)`,", problems)
    if text is None or not isinstance(node, Scalar):
        return None
    try:
        axis = parse_axis(text, node.at(0, len(text)))
    except GraphparError as error:
        problems.found += error.diagnostics
        return None
    if len(axis) > 1:
        problems.add("bad-axes", node.span, "a dimension is one product of others, and this is a sum of several")
        return None
    return next(iter(axis), None)


def _parse_input(key: Scalar, node: Node, problems: Problems) -> InputSpec | None:
    text = word(node, f"an input such as `{_INPUT_FORM}`", problems)
    if text is None or not isinstance(node, Scalar):
        return None
    match = _INPUT.fullmatch(text)
    if match is None:
        problems.add("bad-input", node.span, f"`{text}` does not describe an input", fix=f"{key.text}: {_INPUT_FORM}")
        return None
    dtype = match["dtype"]
    if dtype not in DTYPES:
        hint = did_you_mean(dtype, DTYPES)
        problems.add(
            "bad-input",
            node.at(0, len(dtype)),
            f"no dtype is called `{dtype}`{hint}",
            notes=(Note(f"known: {any_of(DTYPES)}"),),
        )
    return InputSpec(key.text, dtype, _input_axes(match["axes"], match.start("axes"), node, problems), key.span)


def _input_axes(text: str, offset: int, node: Scalar, problems: Problems) -> tuple[tuple[str, int], ...]:
    axes: list[tuple[str, int]] = []
    for part in text.split(",") if text.strip() else ():
        match = _AXIS.fullmatch(part)
        here = node.at(offset + len(part) - len(part.lstrip()), len(part.strip()))
        if match is None or int(match["size"]) < 1:
            problems.add("bad-input", here, f"`{part.strip()}` is no dimension with a size", fix="batch=8")
        elif match["name"] in dict(axes):
            problems.add(
                "bad-input", here, f"`{match['name']}` is given twice", why="a dimension indexes one axis of a tensor"
            )
        else:
            axes.append((match["name"], int(match["size"])))
        offset += len(part) + 1
    return tuple(axes)


def check_sizes(model: ModelSpec | None, dims: dict[str, DimSpec], problems: Problems) -> None:
    """One dimension has one size in all of the inputs and in `dims`."""
    sizes = [(name, size, entry.span) for entry in (model.inputs if model else ()) for name, size in entry.axes]
    sizes += [(dim.name, dim.size, dim.span) for dim in dims.values() if dim.size is not None]
    first: dict[str, tuple[int, Span]] = {}
    for name, size, span in sizes:
        known, where = first.setdefault(name, (size, span))
        if size != known:
            message = f"`{name}` is {size} here and {known} elsewhere"
            why = "a name stands for one dimension, which has one size; two dimensions need two names"
            problems.add("sizes-disagree", span, message, why=why, notes=(Note(f"{name} = {known}", where),))


def _one_selector(key: Scalar, problems: Problems) -> Selector | None:
    try:
        selectors = parse_selectors(key.text, key.at(0, len(key.text)))
    except GraphparError as error:
        problems.found += error.diagnostics
        return None
    if len(selectors) != 1 or selectors[0].kind != "module":
        problems.add(
            "bad-selector",
            key.span,
            "an entry of `names` gives the axes of one parameter",
            fix="c_proj.weight: d_model (heads d_head)",
        )
        return None
    return selectors[0]


def _axes(text: str, node: Scalar, problems: Problems) -> Tensor | None:
    try:
        return parse_tensor(text, node.at(0, len(text)))
    except GraphparError as error:
        problems.found += error.diagnostics
        return None
