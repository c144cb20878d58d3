"""Who may import what, beyond the contracts in pyproject.toml; and what the engine must not know."""

import ast
import io
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ENGINE = sorted((ROOT / "graphpar").rglob("*.py"))
PASSES = sorted((ROOT / "passes").glob("*.py"))
RUNTIME = [path for path in ENGINE if "runtime" in path.parts]

LONGEST = 350  # lines: past this a file usually holds two ideas

# Architectures of the library, and what people call their models. The engine may know the library, and none of these.
ARCHITECTURES = (
    "gpt2 gpt_neox gptneox nanogpt llama mistral mixtral qwen phi3 gemma deepseek olmoe gptoss falcon bloom bert"
).split()


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


every_source = pytest.mark.parametrize("path", ENGINE + PASSES, ids=name)


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports, at its top or inside a function."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name(path)} has a relative import"
            yield node.module or ""


@pytest.mark.parametrize("path", RUNTIME, ids=name)
def test_the_runtime_imports_nothing_else_of_graphpar(path: Path) -> None:
    ours = {module for module in imports(path) if module.split(".")[0] == "graphpar"}
    assert all(module.startswith("graphpar.runtime") for module in ours)


@every_source
def test_nothing_imports_a_pass(path: Path) -> None:
    assert not {module for module in imports(path) if (module + ".").startswith(("passes.", "graphpar.passes."))}


def known_models(source: str) -> list[str]:
    """The names and strings of a program, docstrings apart, that speak of a model; each with its line."""
    docstrings = {line for start, end in docstring_lines(source) for line in range(start, end + 1)}
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return [
        f"{token.start[0]}: {token.string}"
        for token in tokens
        if token.type in (tokenize.NAME, tokenize.STRING)
        and token.start[0] not in docstrings
        and any(word in token.string.lower() for word in ARCHITECTURES)
    ]


def docstring_lines(source: str) -> Iterator[tuple[int, int]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            for child in node.body:
                match child:
                    case ast.Expr(ast.Constant(str())):
                        yield child.lineno, child.end_lineno or child.lineno
                    case _:
                        pass


@every_source
def test_no_model_is_known_by_name(path: Path) -> None:
    """Comments and docstrings may give a model as an example; names and other strings may not."""
    assert not known_models(path.read_text())


def test_a_model_known_by_name_is_found() -> None:
    program = '"""As in GPT-2 or gpt2."""\nif kind == "LlamaAttention":  # not in llama\n    gpt2_rows = 3\n'
    assert known_models(program) == ['2: "LlamaAttention"', "3: gpt2_rows"]


@every_source
def test_a_file_is_short_and_says_what_it_is(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= LONGEST
    assert ast.get_docstring(ast.parse(text)), f"{name(path)} has no docstring"


@pytest.mark.parametrize("module", ["errors", "notation", "language", "library"])
def test_specs_are_read_without_torch(module: str) -> None:
    """A mistake in a spec is reported at once, not after the seconds that importing torch takes."""
    program = f"import sys; sys.modules['torch'] = None; import graphpar.{module}"
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
