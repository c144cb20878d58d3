"""Every diagnostic of the spec language: the smallest spec that has it, and its whole text beside it.

`CODE.yaml` (or `CODE.VARIANT.yaml`) is the spec and `.txt` the text; `pytest --update-golden` writes the texts.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from graphpar.errors import Diagnostic, GraphparError, Note, render_all
from graphpar.language import Spec, load_spec, parse_spec
from graphpar.language.check import check_names, unused_rule
from graphpar.language.check_pipeline import too_many_stages
from graphpar.language.divide import needs_two_axes, not_divisible
from graphpar.language.mesh import check_world, resolve_rest
from graphpar.language.unmatched import ModelNames

HERE = Path(__file__).parent
ENGINE = HERE.parents[1] / "graphpar"

KNOWN = {
    "batch": None,
    "seq": None,
    "d_model": 768,
    "heads": 12,
    "d_head": 64,
    "d_ff": 3072,
    "vocab": 50257,
    "max_pos": 1024,
}
WHERE = {"d_ff": "model.py:33, linear of transformer.h.0.mlp.c_fc", "vocab": "model.py:64, embedding"}
BLOCKS = [f"transformer.h.{i}.{leaf}" for i in range(12) for leaf in ("ln_1", "attn.c_attn", "attn.c_proj", "mlp.c_fc")]
MODEL = ModelNames(
    paths=["transformer.wte", *BLOCKS, "transformer.ln_f", "lm_head", "input:idx", "input:targets", "output:loss"],
    parameters=[f"{path}.weight" for path in BLOCKS],
    ops=[("sdpa", "transformer.h.0.attn"), ("linear", "lm_head")],
    lines=[("nano/model.py", 54), ("nano/model.py", 57)],
    lists={"transformer.h": 12},
    aliases={"layers": "transformer.h"},
)


def with_model(spec: Spec) -> tuple[Diagnostic, ...]:
    return check_names(spec, KNOWN, WHERE, MODEL)


def with_experts(spec: Spec) -> tuple[Diagnostic, ...]:
    return check_names(spec, KNOWN | {"experts": 8}, WHERE, MODEL)


def uneven_cuts(spec: Spec) -> tuple[Diagnostic, ...]:
    shared = Note("vocab is axis 0 of wte.weight and of lm_head.weight")
    vocab, d_ff = spec.layout
    return (
        not_divisible(vocab, 50257, 4, notes=(shared,), pad=True),
        not_divisible(d_ff, 3073, 8, axes="tp 4 * tq 2", why=("linear at model.py:33 has 3073 outputs",)),
    )


def stages_per_rank(spec: Spec) -> int:
    return spec.pipeline.virtual if spec.pipeline else 1


# What a later phase makes of a spec that has nothing wrong on its own, by code or by code and variant.
PHASES = {
    "needs-two-axes": lambda spec: (needs_two_axes(spec.layout[0], 2, 16, 8), needs_two_axes(spec.layout[0], 2, 6, 8)),
    "not-divisible": uneven_cuts,
    "unused-rule": lambda spec: (
        unused_rule(spec.layout[1], "all 48 ops that have d_head also have heads", spec.layout[0]),
    ),
    "too-many-stages": lambda spec: too_many_stages(
        spec, ranks := spec.mesh.sizes()["pp"], ranks * stages_per_rank(spec), 12
    ),
    "world-size": lambda spec: check_world(spec.mesh, 8),
    "world-unknown": lambda spec: resolve_rest(spec.mesh, None),
    **dict.fromkeys(("not-a-token-dimension.group", "not-divisible.experts", "unknown-dimension.group"), with_experts),
    "no-experts": with_model,
    **dict.fromkeys(("not-a-token-dimension.group", "not-divisible.experts", "unknown-dimension.group"), with_experts),
    **dict.fromkeys(
        ("not-a-token-dimension", "selector-matches-nothing", "size-mismatch", "unknown-dimension"), with_model
    ),
}


def text_of(path: Path) -> str:
    source = path.read_text(encoding="utf-8")
    with pytest.raises(GraphparError) as caught:
        spec = parse_spec(source, path.name)
        phase = PHASES.get(path.stem) or PHASES[path.stem.split(".")[0]]
        raise GraphparError(phase(spec))
    assert caught.value.exit_code == 2
    codes = {diagnostic.code for diagnostic in caught.value.diagnostics}
    assert path.stem.split(".")[0] in codes
    return render_all(caught.value, lambda _: source) + "\n"


@pytest.mark.parametrize("path", sorted(HERE.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_text_is_the_golden(path, golden):
    golden(path.with_suffix(".txt"), text_of(path))


def test_a_file_that_is_not_there(golden):
    with pytest.raises(GraphparError) as caught:
        load_spec("no/such/spec.yaml")
    golden(HERE / "no-such-file.txt", render_all(caught.value) + "\n")


def test_every_code_of_the_language_has_a_golden():
    codes: set[str] = set()
    for path in [ENGINE / "notation.py", *sorted((ENGINE / "language").glob("*.py"))]:
        calls = (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call))
        for call in calls:
            name = ast.unparse(call.func)
            if name.endswith(("Diagnostic", "problems.add", "_refuse")) and isinstance(call.args[0], ast.Constant):
                codes.add(call.args[0].value)
    assert len(codes) > 30
    assert codes == {path.name.split(".")[0] for path in HERE.glob("*.txt")}
