"""`python -m tools.pictures`: draw the models in this folder, at their published sizes, into docs/pictures."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs" / "pictures"


def main() -> None:
    """One picture for each spec."""
    DOCS.mkdir(exist_ok=True)
    for spec in sorted(HERE.glob("*/*.yaml")):
        with tempfile.TemporaryDirectory() as build:
            graphpar("compile", spec.parent.name, str(spec), "-o", build)
            graphpar("visualize", build)
            for name in ("graph", "schedule"):
                if (drawn := Path(build) / f"{name}.svg").exists():
                    shutil.copy(drawn, DOCS / f"{spec.stem}-{name}.svg")


def graphpar(*words: str) -> None:
    """Run graphpar beside the models, without what it says."""
    subprocess.run([sys.executable, "-m", "graphpar", *words], cwd=HERE, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
