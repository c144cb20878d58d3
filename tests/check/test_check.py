"""The check of a program's text: silent for what the compiler writes, and not fooled by an edit."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from compiled_zoo import origin, parsed
from zoo import MODELS, spec

from graphpar.check.check import check_program
from graphpar.check.in_order import collectives
from graphpar.check.rules import RULES
from graphpar.compiler import Build, compile_captured

COLLECTIVES = ("all_reduce", "grad_all_reduce", "all_gather", "reduce_scatter", "slice_")
LINE = re.compile(rf"^ +(?:return |\w+ = )({'|'.join(COLLECTIVES)})\((.*)\)", re.MULTILINE)

BUILDS = [
    ("gpt2", "dp2xtp2+sp"),
    ("gpt2", "dp2xtp2"),
    ("llama_gqa", "tp2xd2"),
    ("phi3", "dp2xtp2+sp"),
    ("gpt_neox", "tp2"),
]
pytestmark = pytest.mark.xdist_group("check")


@cache
def build(name: str, layout: str) -> Build:
    """One of the zoo."""
    document = parsed(spec(layout, MODELS[name]))
    return compile_captured(origin(name).captured, document, {"model": name, "spec_file": "spec.yaml"})


def messages(text: str, plan: dict[str, Any]) -> list[str]:
    """What is found."""
    return [f"{f.line}: {f.message}" for f in check_program(text, plan)]


@pytest.mark.parametrize(("name", "layout"), BUILDS)
def test_what_the_compiler_writes_is_proven(name: str, layout: str) -> None:
    made = build(name, layout)
    assert messages(made.files["model.py"], dict(made.plan)) == []
    assert collectives(made.plan)


def edits(text: str) -> Iterator[tuple[str, str]]:
    """Each collective left out, run twice, or replaced by another; each class's axis replaced by another."""
    found = list(LINE.finditer(text))
    for match in found:
        line, call, operands = match.group(0), match.group(1), match.group(2)
        operand, _, rest = operands.partition(", ")
        start, end = match.span()
        put = lambda new, start=start, end=end: text[:start] + new + text[end:]  # noqa: E731
        yield f"no {line.strip()}", put(line.replace(f"{call}({operands})", operand))
        yield f"two {line.strip()}", put(line.replace(f"{call}({operands})", f"{call}({call}({operands}), {rest})"))
        for other in COLLECTIVES:
            if other != call and ("dim=" in rest) == (other not in ("all_reduce", "grad_all_reduce")):
                yield f"{other} for {line.strip()}", put(line.replace(call, other, 1))
    axes = set(re.findall(r'mesh\["(\w+)"\]', text)) | {"dp"}
    for match in re.finditer(r'mesh\["(\w+)"\]', text):
        for axis in axes - {match.group(1)}:
            yield f"{axis} for {match.group(1)}", text[: match.start()] + f'mesh["{axis}"]' + text[match.end() :]


@pytest.mark.parametrize(("name", "layout"), BUILDS)
def test_no_edit_of_a_collective_is_missed(name: str, layout: str) -> None:
    made = build(name, layout)
    text = made.files["model.py"]
    imports = ", ".join(COLLECTIVES)
    text = text.replace(
        "from graphpar.runtime import (", f"from graphpar.runtime import {imports}\nfrom graphpar.runtime import ("
    )
    plan = dict(made.plan)
    assert messages(text, plan) == []
    missed = [what for what, edited in edits(text) if not messages(edited, plan)]
    assert missed == []


def test_swapped_collectives_are_found() -> None:
    made = build("gpt2", "dp2xtp2+sp")
    text = made.files["model.py"]
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if "reduce_scatter(c_proj" in line)
    gather = next(i for i, line in enumerate(lines) if "= all_gather(hidden_states" in line)
    lines[at], lines[gather] = lines[gather], lines[at]
    assert messages("\n".join(lines), dict(made.plan))


WRONG = [
    ("a bias added once per rank", "attn_output.flatten(2) @ self.c_proj.weight", "attn_output.flatten(2) @ self.c_proj.weight + self.c_proj.bias", "added once per rank"),
    ("a norm's gradient is not summed", 'weight=mesh.parameter(64, grad_sum="dp tp")', 'weight=mesh.parameter(64, grad_sum="dp")', "is a summand after backward over dp here, and dp tp in the plan"),
    ("a nonlinear function of a summand", "c_proj = reduce_scatter(c_proj, self.tp, dim=1)", "c_proj = reduce_scatter(torch.tanh(c_proj), self.tp, dim=1)", "the sum over tp must be taken before this"),
    ("masks that are equal on parts", 'self.random = mesh.random("dp", "tp")', 'self.random = mesh.random("dp")', "its random numbers are the same on every part"),
    ("a mean over one rank's tokens", "vocab_cross_entropy(logits, shift_labels, self.tp, vocab=97)", 'vocab_cross_entropy(logits, shift_labels, self.tp, vocab=97, reduction="mean")', "is not the mean over all"),
    ("another local size", 'weight=mesh.parameter(64, 96, sharded="tp", grad_sum="dp")', 'weight=mesh.parameter(64, 98, sharded="tp", grad_sum="dp")', "this rank's part of [64, 192] is [64, 96]"),
    ("a parameter without a home", "self.ln_f = Parameters(", "self.ln_g = Parameters(", "transformer.ln_f.weight is in the plan, but no module declares it"),
    ("something that depends on the rank", "hidden_states = attn_output + hidden_states", "hidden_states = attn_output + hidden_states * self.attn.tp.rank", "may differ between ranks"),
    ("a condition", "        return hidden_states + x ", "        if hidden_states.sum() > 0:\n            return x\n        return hidden_states + x ", "a statement of this kind is not followed"),
    ("an operation without a rule", "x = self.mlp(ln_2)", "x = torch.fft.fft(self.mlp(ln_2))", "there is no rule for torch.fft.fft"),
    ("no count", "    def count(self", "    def counts(self", "there is no class GPT2LMHeadModel with count"),
    ("no Python", "class GPT2Block", "klass GPT2Block", "this is no Python"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "old", "new", "said"), WRONG, ids=[w[0].replace(" ", "-") for w in WRONG])
def test_a_wrong_program_is_found(name: str, old: str, new: str, said: str) -> None:
    made = build("gpt2", "dp2xtp2+sp")
    text = made.files["model.py"]
    assert old in text, name
    found = messages(text.replace(old, new, 1), dict(made.plan))
    assert any(said in message for message in found), found


def test_what_follows_from_a_finding_is_not_told() -> None:
    made = build("gpt2", "dp2xtp2+sp")
    text = made.files["model.py"].replace("all_gather(hidden_states, self.tp, dim=1)", "hidden_states")
    (found,) = messages(text, dict(made.plan))
    assert "F.linear(hidden_states, self.c_attn" in text.splitlines()[int(found.split(":")[0]) - 1]


def test_every_wrong_declaration_is_told() -> None:
    made = build("gpt2", "dp2xtp2+sp")
    text = made.files["model.py"].replace('bias=mesh.parameter(64, grad_sum="dp tp")', "bias=mesh.parameter(64)")
    found = messages(text, dict(made.plan))
    assert len({message.split(":")[0] for message in found}) == text.count("bias=mesh.parameter(64)") == 5


def test_the_runtime_has_no_function_without_a_rule() -> None:
    tree = ast.parse(build("gpt2", "dp2xtp2").files["model.py"])
    names = {a.name for node in tree.body if isinstance(node, ast.ImportFrom) for a in node.names}
    runtime = names - {"Mesh", "Parameters", "Tensor", "nn"}
    assert runtime <= set(RULES)
