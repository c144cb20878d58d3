"""The tests here compare programs as those of the compiler do."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "compiler"))
torch.set_num_threads(1)  # the models are tiny: more threads only wait for each other
