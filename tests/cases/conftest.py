"""The tests here compare programs as those of the compiler do, and their models are made of the same parts."""

import sys
from pathlib import Path

COMPILER = Path(__file__).parents[1] / "compiler"
sys.path[:0] = [str(COMPILER), str(COMPILER / "models")]
