"""A spec file to a `Spec`. All that shows without the model is checked, and all mistakes are reported at once."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from graphpar.errors import Diagnostic, GraphparError, Span, raise_if_any
from graphpar.language.check_moe import check_moe
from graphpar.language.check_pipeline import check_pipeline
from graphpar.language.parse_expect import parse_expect
from graphpar.language.parse_layout import parse_layout, parse_mesh
from graphpar.language.parse_model import (
    DTYPES,
    check_sizes,
    dimension_name,
    parse_dims,
    parse_model,
    parse_names,
    parse_ops,
)
from graphpar.language.parse_moe import parse_moe
from graphpar.language.parse_pipeline import parse_pipeline
from graphpar.language.reader import Listing, Mapping, Node, Scalar, read_yaml
from graphpar.language.scalars import Problems, Section, boolean, choice, items, named_entries, section, truth, word
from graphpar.language.schema import (
    LayoutRule,
    MeshSpec,
    Numerics,
    Padding,
    Recompute,
    Region,
    Rng,
    Spec,
    Uneven,
    Whole,
)
from graphpar.language.selectors import Selector, parse_selectors

VERSION = 1
KEYS = (
    "version",
    "model",
    "mesh",
    "dims",
    "names",
    "layout",
    "regions",
    "uneven",
    "numerics",
    "ops",
    "outputs",
    "pipeline",
    "moe",
    "expect",
    "strict",
)
REQUIRED = {"version": "version: 1", "mesh": "mesh: {tp: 2}", "layout": "layout:\n  - heads: tp"}
LATER = {
    "store": "sharded storage of parameters, gradients and optimizer state",
    "context": "attention over a sharded sequence",
}


def load_spec(path: str | Path) -> Spec:
    """Read a spec file. Raises GraphparError with every mistake that shows without a model."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise GraphparError(
            Diagnostic("no-such-file", None, f"cannot read the spec {path}: {error.strerror}")
        ) from error
    except UnicodeDecodeError as error:
        message = f"the spec {path} is not UTF-8: byte {error.start} is {error.object[error.start]:#04x}"
        raise GraphparError(Diagnostic("no-such-file", None, message)) from error
    return parse_spec(text, str(path))


def parse_spec(text: str, path: str = "spec.yaml") -> Spec:
    """Read the text of a spec; `path` is the name that messages use. Raises GraphparError like `load_spec`."""
    root = read_yaml(text, path)
    problems = Problems()
    found = section(root, "a spec", KEYS, problems, LATER)
    raise_if_any([] if isinstance(root, Mapping) else problems.found)
    _check_required(found, root.span, problems)
    mesh = parse_mesh(found["mesh"][1], problems) if "mesh" in found else None
    layout = parse_layout(found["layout"][1], mesh, problems) if "layout" in found else ()
    model = parse_model(found["model"][1], problems) if "model" in found else None
    dims = parse_dims(found["dims"][1], problems) if "dims" in found else {}
    check_sizes(model, dims, problems)
    spec = Spec(
        mesh=mesh or MeshSpec(()),
        layout=layout,
        version=VERSION,
        model=model,
        dims=dims,
        names=parse_names(found["names"][1], problems) if "names" in found else (),
        regions=_parse_regions(found["regions"][1], mesh, problems) if "regions" in found else (),
        uneven=_parse_uneven(found["uneven"][1], problems) if "uneven" in found else Uneven(),
        strict=boolean(found["strict"][1], problems) is not False if "strict" in found else True,
        expect=parse_expect(found["expect"][1], mesh, problems) if "expect" in found else None,
        pipeline=parse_pipeline(found["pipeline"][1], mesh, problems) if "pipeline" in found else None,
        moe=parse_moe(found["moe"], mesh, problems) if "moe" in found else None,
        numerics=_parse_numerics(found["numerics"][1], problems) if "numerics" in found else Numerics(),
        ops=parse_ops(found["ops"][1], problems) if "ops" in found else {},
        outputs=_parse_outputs(found["outputs"][1], problems) if "outputs" in found else {},
        path=path,
        text=text,
    )
    raise_if_any(problems.found or (*check_moe(spec), *check_pipeline(spec)))
    return spec


def _check_required(found: Section, spec: Span, problems: Problems) -> None:
    start = spec.within(0, 1)
    for key, fix in REQUIRED.items():
        if key not in found:
            problems.add("missing-key", start, f"the spec has no `{key}`", fix=fix)
    if "version" in found:
        node = found["version"][1]
        if not isinstance(node, Scalar) or not node.plain or node.text != str(VERSION):
            problems.add(
                "bad-version",
                node.span,
                f"this graphpar reads version {VERSION} of the spec language",
                fix=f"version: {VERSION}",
            )


def _parse_regions(node: Node, mesh: MeshSpec | None, problems: Problems) -> tuple[Region, ...]:
    regions: list[Region] = []
    for item in items(
        node, "`regions`", problems, fix="regions:\n  - at: layers[0].mlp\n    layout:\n      - d_ff: none"
    ):
        before = len(problems.found)
        found = section(item, "a region", ("at", "layout", "only", "recompute", "why"), problems)
        at = _parse_at(found["at"][1], problems) if "at" in found else ()
        if "at" not in found:
            problems.add("missing-key", item.span, "the region does not say where it applies", fix="at: layers[0].mlp")
        layout: tuple[LayoutRule, ...] = ()
        if "layout" in found:
            layout = parse_layout(found["layout"][1], mesh, problems, "the `layout` of a region")
        only = bool(boolean(found["only"][1], problems)) if "only" in found else False
        recompute = _recompute(found["recompute"][1], problems) if "recompute" in found else None
        why = word(found["why"][1], "a sentence", problems) if "why" in found else None
        if not layout and not only and recompute is None and len(problems.found) == before:
            problems.add(
                "empty-region",
                item.span,
                "this region changes nothing",
                why="it has no rules, and it keeps the global ones",
                fix="layout: [d_ff: none]",
            )
        regions.append(Region(at, layout, only, recompute, why, item.span))
    return tuple(regions)


def _recompute(node: Node, problems: Problems) -> Recompute | None:
    if (value := truth(node)) is not None:
        return value
    return cast("Recompute | None", choice(node, ("true", "false", "selective"), problems))


def _parse_at(node: Node, problems: Problems) -> tuple[Selector, ...]:
    if isinstance(node, Listing) and all(isinstance(item, Scalar) for item in node.items):
        fix = ", ".join(item.text for item in node.items if isinstance(item, Scalar))
        why = "an index such as [0:2] could not stand in a YAML list, so a selector is always text"
        problems.add("wrong-type", node.span, "several selectors are one text with commas", why=why, fix=f"at: {fix}")
        return ()
    text = word(node, "a selector", problems)
    if text is None or not isinstance(node, Scalar):
        return ()
    try:
        return parse_selectors(text, node.at(0, len(text)))
    except GraphparError as error:
        problems.found += error.diagnostics
        return ()


def _parse_uneven(node: Node, problems: Problems) -> Uneven:
    by_name: dict[str, Padding] = {}
    spans: dict[str, Span] = {}
    for key, value in named_entries(node, "`uneven`", problems):
        dimension_name(key, problems)
        treatment = choice(value, ("error", "pad"), problems)
        if treatment is not None:
            by_name[key.text] = cast("Padding", treatment)
            spans[key.text] = key.span
    default = by_name.pop("default", "error")
    if default == "pad":
        message = "padding is chosen for one dimension at a time"
        why = "whether padding is exact depends on what a dimension passes: d_model norms, d_ff perhaps a sigmoid"
        problems.add("unknown-choice", spans["default"], message, why=why, fix="uneven: {vocab: pad}")
    return Uneven(default, by_name, spans)


def _parse_numerics(node: Node, problems: Problems) -> Numerics:
    known = ("grad_reduce_dtype", "rng", "deterministic")
    found = section(node, "`numerics`", known, problems, {"check": "the tolerance of a check of the result"})
    floats = tuple(dtype for dtype in DTYPES if "float" in dtype)
    dtype = choice(found["grad_reduce_dtype"][1], floats, problems) if "grad_reduce_dtype" in found else None
    rng = choice(found["rng"][1], ("statistical", "exact"), problems) if "rng" in found else None
    deterministic = boolean(found["deterministic"][1], problems) if "deterministic" in found else None
    return Numerics(dtype, cast("Rng", rng or "statistical"), bool(deterministic))


def _parse_outputs(node: Node, problems: Problems) -> dict[str, Whole]:
    outputs: dict[str, Whole] = {}
    for key, value in named_entries(node, "`outputs`", problems):
        treatment = choice(value, ("whole", "sharded"), problems)
        if treatment is not None:
            outputs[key.text] = cast("Whole", treatment)
    return outputs
