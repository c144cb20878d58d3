"""The right programs that mutants are made of: three small models, each in the layouts that show a kind of mistake."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from graphpar.compiler import compile_captured
from graphpar.language.parse import parse_spec
from graphpar.language.schema import Spec
from graphpar.sources.door import open_model
from graphpar.verify.origin import Origin
from tools.mutants.mutant import Files

MODELS = Path(__file__).parents[2] / "tests" / "models"

# gpt    biases, dropout, a position table, attention in the open, a vocabulary that is padded
# tied   the same with one table for embedding and head, packed q, k and v, fused attention
# llama  rotary positions, fewer heads of keys and values than of queries, RMSNorm
SOURCES = {"gpt": "nanogpt_manual.py:tiny", "tied": "tied_functional.py:tiny", "llama": "llama_style.py:tiny"}

TENSOR = [{"heads": "tp"}, {"d_ff": "tp"}, {"vocab": "tp"}]
DATA = {"batch": "dp"}
SEQUENCE = {"seq": "tp"}
PAD = {"uneven": {"vocab": "pad"}}
EXACT = {"numerics": {"rng": "exact"}}
GROUPS = [{"kv_heads": "tp"}, {"q_group": "tq"}, {"d_ff": ["tp", "tq"]}, {"vocab": ["tp", "tq"]}]

LAYOUTS = {
    "tp2": {"mesh": {"tp": 2}, "layout": TENSOR},
    "tp2+sp": {"mesh": {"tp": 2}, "layout": [*TENSOR, SEQUENCE]},
    "dp2": {"mesh": {"dp": 2}, "layout": [DATA]},
    "dp2xtp2": {"mesh": {"dp": 2, "tp": 2}, "layout": [DATA, *TENSOR]},
    "dp2xtp2+sp": {"mesh": {"dp": 2, "tp": 2}, "layout": [DATA, *TENSOR, SEQUENCE]},
    "exact": {"mesh": {"dp": 2, "tp": 2}, "layout": [DATA, *TENSOR, SEQUENCE], **EXACT},
    "kv2xq2": {"mesh": {"tp": 2, "tq": 2}, "layout": GROUPS},  # each head of keys and values on two ranks
}

EVERYTHING = (
    "from torch import Tensor, nn; import torch; from graphpar.runtime import all_gather, all_gather_same, all_reduce, "
    "grad_all_reduce, pad_partial, reduce_scatter, slice_, slice_partial"
)


@dataclass(frozen=True)
class Build:
    """A compiled program, and what it is verified against."""

    name: str
    folder: Path
    origin: Origin
    spec: Spec

    @property
    def files(self) -> Files:
        """What may be edited. The program may use every collective; its lines keep their numbers."""
        names = ("model.py", "plan.json", "init.json")
        files = {name: (self.folder / name).read_text(encoding="utf-8") for name in names}
        files["model.py"] = files["model.py"].replace("from torch import Tensor, nn", EVERYTHING, 1)
        return files

    def text_and_plan(self, files: Files) -> tuple[str, dict[str, object]]:
        """What the static check reads."""
        return files["model.py"], json.loads(files["plan.json"])


def compiled(name: str, root: Path) -> Build:
    """The build of that name, in a folder of its own below `root`."""
    model, layout = name.split()
    folder = root / name.replace(" ", "-")
    uneven = {} if model == "llama" or layout == "dp2" else PAD
    spec = parse_spec(yaml.safe_dump({"version": 1, **LAYOUTS[layout], **uneven}, sort_keys=False), "spec.yaml")
    described = {"model": SOURCES[model], "spec_file": "spec.yaml"}
    compile_captured(_origin(model).captured, spec, described).write(folder)
    return Build(name, folder, _origin(model), spec)


@cache
def _origin(model: str) -> Origin:
    """The model, captured once."""
    source = open_model(str(MODELS / SOURCES[model]))
    return Origin(source.construct, source.signature)
