"""The right programs that mutants are made of: small models, each in the layouts that show a kind of mistake."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from graphpar.check.check import check_program
from graphpar.check.interpret import Finding
from graphpar.check.schedule import check_schedule
from graphpar.compiler import compile_captured
from graphpar.language.parse import parse_spec
from graphpar.language.schema import Spec
from graphpar.sources.door import open_model
from graphpar.verify.origin import Origin
from tools.mutants.mutant import Files

MODELS = Path(__file__).parents[2] / "tests" / "models"
CONFIGS = Path(__file__).with_name("configs")

# gpt    biases, dropout, a position table, attention in the open, a vocabulary that is padded
# tied   the same with one table for embedding and head, packed q, k and v, fused attention
# llama  rotary positions, fewer heads of keys and values than of queries, RMSNorm
# passed every layer reads the embeddings, which stages pass on
# sorted rows sorted by expert, a bias of each expert, a loss that balances experts
# mixtral, gpt_oss  from their configs: that loss at the end of the model; biases behind both products of an expert
SOURCES = {
    "gpt": f"{MODELS / 'nanogpt_manual.py'}:tiny",
    "tied": f"{MODELS / 'tied_functional.py'}:tiny",
    "llama": f"{MODELS / 'llama_style.py'}:tiny",
    "passed": f"{Path(__file__).with_name('passed_on.py')}:tiny",
    "sorted": f"{MODELS / 'moe_plain.py'}:tiny",
    "mixtral": str(CONFIGS / "mixtral"),
    "gpt_oss": str(CONFIGS / "gpt_oss"),
}

TENSOR = [{"heads": "tp"}, {"d_ff": "tp"}, {"vocab": "tp"}]
DATA = {"batch": "dp"}
TOKENS = {"batch": "ep"}
SEQUENCE = {"seq": "tp"}
PAD = {"uneven": {"vocab": "pad"}}
EXACT = {"numerics": {"rng": "exact"}}
GROUPS = [{"kv_heads": "tp"}, {"q_group": "tq"}, {"d_ff": ["tp", "tq"]}, {"vocab": ["tp", "tq"]}]


def _pipeline(schedule: str, **more: int) -> dict[str, Any]:
    return {"pipeline": {"axis": "pp", "schedule": schedule, "microbatches": 4, **more}}


def _experts(mesh: dict[str, Any], layout: list[dict[str, str]], **more: str) -> dict[str, Any]:
    return {"mesh": mesh, "layout": layout, "moe": {"experts": "ep", **more}}


LAYOUTS = {
    "tp2": {"mesh": {"tp": 2}, "layout": TENSOR},
    "tp2+sp": {"mesh": {"tp": 2}, "layout": [*TENSOR, SEQUENCE]},
    "dp2": {"mesh": {"dp": 2}, "layout": [DATA]},
    "dp2xtp2": {"mesh": {"dp": 2, "tp": 2}, "layout": [DATA, *TENSOR]},
    "dp2xtp2+sp": {"mesh": {"dp": 2, "tp": 2}, "layout": [DATA, *TENSOR, SEQUENCE]},
    "exact": {"mesh": {"dp": 2, "tp": 2}, "layout": [DATA, *TENSOR, SEQUENCE], **EXACT},
    "pp2": {"mesh": {"pp": 2}, "layout": [], **_pipeline("1f1b")},
    "pp2xdp2": {"mesh": {"dp": 2, "pp": 2}, "layout": [DATA], **_pipeline("1f1b")},
    "pp2xtp2": {"mesh": {"pp": 2, "tp": 2}, "layout": TENSOR, **_pipeline("1f1b")},
    "pp2xtp2+sp": {"mesh": {"pp": 2, "tp": 2}, "layout": [*TENSOR, SEQUENCE], **_pipeline("1f1b")},
    "pp2+again": {
        "mesh": {"pp": 2},
        "layout": [],
        "regions": [{"at": "layers", "recompute": True}],
        **_pipeline("1f1b"),
    },
    "pp1x2": {"mesh": {"pp": 1}, "layout": [], **_pipeline("interleaved", virtual=2)},
    "pp2x2": {"mesh": {"pp": 2}, "layout": [], **_pipeline("zero_bubble", virtual=2)},  # two stages on each rank
    "kv2xq2": {"mesh": {"tp": 2, "tq": 2}, "layout": GROUPS},  # each head of keys and values on two ranks
    "ep2": _experts({"ep": 2}, [TOKENS]),
    "ep2+gathered": _experts({"ep": 2}, [TOKENS], dispatch="allgather"),
    "ep2+same": _experts({"ep": 2}, []),  # every rank has all tokens
    "ep2xtp2": _experts({"ep": 2, "tp": 2}, [TOKENS, *TENSOR]),
    "ep2xtp2+sp": _experts({"ep": 2, "tp": 2}, [TOKENS, *TENSOR, SEQUENCE]),
    "ep=dp": _experts({"dp": 2, "aliases": {"ep": "dp"}}, [DATA]),
}

FILES = ("model.py", "plan.json", "init.json", "schedule.csv")

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
        files = {
            name: (self.folder / name).read_text(encoding="utf-8") for name in FILES if (self.folder / name).exists()
        }
        files["model.py"] = files["model.py"].replace("from torch import Tensor, nn", EVERYTHING, 1)
        return files

    def findings(self, files: Files) -> list[Finding]:
        """What the static check says."""
        plan = json.loads(files["plan.json"])
        return [*check_program(files["model.py"], plan), *check_schedule(files.get("schedule.csv", ""), plan)]


def compiled(name: str, root: Path) -> Build:
    """The build of that name, in a folder of its own below `root`."""
    model, layout = name.split()
    folder = root / name.replace(" ", "-")
    uneven = PAD if model in ("gpt", "tied") and "tp" in LAYOUTS[layout]["mesh"] else {}
    spec = parse_spec(yaml.safe_dump({"version": 1, **LAYOUTS[layout], **uneven}, sort_keys=False), "spec.yaml")
    described = {"model": Path(SOURCES[model]).name, "spec_file": "spec.yaml"}
    compile_captured(_origin(model).captured, spec, described).write(folder)
    return Build(name, folder, _origin(model), spec)


@cache
def _origin(model: str) -> Origin:
    """The model, captured once."""
    source = open_model(SOURCES[model])
    return Origin(source.construct, source.signature)
