"""The tests here compare programs as those of the compiler do."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "compiler"))
