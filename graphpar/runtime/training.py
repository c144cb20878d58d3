"""What a generated train.py is made of."""

from graphpar.runtime.announce import announce
from graphpar.runtime.checkpoint import Checkpoints
from graphpar.runtime.data import Batches
from graphpar.runtime.failure import run
from graphpar.runtime.gradients import GradientSums
from graphpar.runtime.initialise import initialise, load
from graphpar.runtime.loss import count_labels, held_out_loss, matmul_precision, over_data
from graphpar.runtime.mesh import Mesh
from graphpar.runtime.metrics import Metrics, plot
from graphpar.runtime.norms import clip
from graphpar.runtime.optimizer import adamw, set_rate
from graphpar.runtime.plan import read_plan
from graphpar.runtime.rows import read_rows
from graphpar.runtime.schedule import learning_rate
from graphpar.runtime.settings import read_settings
from graphpar.runtime.tape import read_tape
from graphpar.runtime.tokens import read_tokens
from graphpar.runtime.watch import Watch
from graphpar.runtime.weights import save_weights

__all__ = [
    "Batches",
    "Checkpoints",
    "GradientSums",
    "Mesh",
    "Metrics",
    "Watch",
    "adamw",
    "announce",
    "clip",
    "count_labels",
    "held_out_loss",
    "initialise",
    "learning_rate",
    "load",
    "matmul_precision",
    "over_data",
    "plot",
    "read_plan",
    "read_rows",
    "read_settings",
    "read_tape",
    "read_tokens",
    "run",
    "save_weights",
    "set_rate",
]
