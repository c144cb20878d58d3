"""`python -m tools.readme`: write what README.md shows of a build, and its figures, between their HTML comments.

python -m tools.bench --json figures.json
python -m tools.readme --figures figures.json
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphpar.demo.command import SHOWN, SPEC
from graphpar.demo.material import prepare
from graphpar.demo.results import worth_reading

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
KINDS = {"tp": "tensor parallel", "dp": "data parallel"}


def main() -> None:
    """Rewrite README.md."""
    parser = argparse.ArgumentParser(prog="python -m tools.readme", description="write the made parts of README.md")
    parser.add_argument("--figures", type=Path, metavar="JSON", help="what `python -m tools.bench --json` wrote")
    arguments = parser.parse_args()
    text = README.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        build, spec = compile_demo(Path(folder) / "demo")
        text = replaced(text, "example", example((build / "model.py").read_text(encoding="utf-8"), spec))
    if arguments.figures:
        text = replaced(text, "figures", figures(json.loads(arguments.figures.read_text(encoding="utf-8"))))
    README.write_text(text, encoding="utf-8")


def compile_demo(folder: Path) -> tuple[Path, Path]:
    """The build of the demo's model, and the spec that it was made for."""
    model, build = prepare(folder).model, folder / "build"
    name = SPEC.format(model=model.name)
    graphpar("compile", str(model), name, "-o", str(build))
    return build, ROOT / "specs" / f"{name}.yaml"


def graphpar(*words: str) -> None:
    """Run graphpar without what it says."""
    subprocess.run([sys.executable, "-m", "graphpar", *words], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def example(program: str, spec: Path) -> str:
    """The spec, and the module that it makes of one of the source's."""
    code = worth_reading(program, SHOWN)
    code = re.sub(r"(?<=\S) {4,}(?=[^\s#])", "   ", code)  # room for the reasons on a narrow page
    layout = spec.read_text(encoding="utf-8").strip()
    return f"```yaml\n{layout}\n```\n\n```python\n{code}\n```"


def figures(document: Mapping[str, Any]) -> str:
    """The measurements as a table, and what they were made on."""
    rows = [
        f"| {KINDS[result['layout']]} | {result['width']} | {result['milliseconds'][ratio['of']]:.1f} ms "
        f"| {ratio['to']}: {result['milliseconds'][ratio['to']]:.1f} ms "
        f"| {ratio['median']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f}) |"
        for result in document["results"]
        for ratio in result["ratios"]
    ]
    machine = document["machine"]
    model = f"a GPT with {document['layers']} layers, batch {document['batch']} x {document['length']}"
    place = f"{machine['cpu']}, {machine['cores']} cores, torch {machine['torch']}"
    below = (
        f"Medians of {document['rounds']} rounds of forward and backward of {model}, on {document['ranks']} ranks"
        " with one thread each, over Gloo; the ratio is paired, with its 95 % interval."
        f" {place}. `python -m tools.bench` measures it anew."
    )
    head = "| | width | graphpar | next to | ratio |\n|---|--:|--:|--:|--:|"
    return "\n".join([head, *rows, "", below])


def replaced(text: str, name: str, content: str) -> str:
    """A text with the part between `<!-- name -->` and `<!-- /name -->` put in its place."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"README.md has no {begin} .. {end}")
    return f"{before}{begin}\n{content}\n{end}{after}"


if __name__ == "__main__":
    main()
