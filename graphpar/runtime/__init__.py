"""What generated programs import: the mesh, collectives in pairs, and what a training step does across ranks."""

from graphpar.runtime.axis import Axis, Executed
from graphpar.runtime.buckets import Gradient, buckets
from graphpar.runtime.casts import upcast
from graphpar.runtime.collectives import (
    all_gather,
    all_gather_same,
    all_reduce,
    all_reduce_count,
    all_reduce_max,
    all_to_all,
    first_only,
    first_only_both,
    grad_all_reduce,
    pad_partial,
    reduce_scatter,
    slice_,
    slice_partial,
)
from graphpar.runtime.expert_capacity import capacity, kept
from graphpar.runtime.expert_products import expert_bias, expert_linear
from graphpar.runtime.experts import all_rows, combine, dispatch, own_rows, to_experts, to_tokens
from graphpar.runtime.gradients import GradientSums
from graphpar.runtime.grouped import grouped_matmul
from graphpar.runtime.meeting import CollectiveError
from graphpar.runtime.mesh import Mesh, MeshError
from graphpar.runtime.norms import all_finite, clip, gradient_norm
from graphpar.runtime.parameters import Parameters
from graphpar.runtime.random import Stream, attention, dropout, stream_seed
from graphpar.runtime.routing import Routing, exchange_counts, own_counts, route
from graphpar.runtime.simulate import simulate
from graphpar.runtime.stages import Stages
from graphpar.runtime.statistics import split_layer_norm, split_rms_norm, split_softmax
from graphpar.runtime.vocab import vocab_cross_entropy, vocab_embedding

__all__ = [
    "Axis",
    "CollectiveError",
    "Executed",
    "Gradient",
    "GradientSums",
    "Mesh",
    "MeshError",
    "Parameters",
    "Routing",
    "Stages",
    "Stream",
    "all_finite",
    "all_gather",
    "all_gather_same",
    "all_reduce",
    "all_reduce_count",
    "all_reduce_max",
    "all_rows",
    "all_to_all",
    "attention",
    "buckets",
    "capacity",
    "clip",
    "combine",
    "dispatch",
    "dropout",
    "exchange_counts",
    "expert_bias",
    "expert_linear",
    "first_only",
    "first_only_both",
    "grad_all_reduce",
    "gradient_norm",
    "grouped_matmul",
    "kept",
    "own_counts",
    "own_rows",
    "pad_partial",
    "reduce_scatter",
    "route",
    "simulate",
    "slice_",
    "slice_partial",
    "split_layer_norm",
    "split_rms_norm",
    "split_softmax",
    "stream_seed",
    "to_experts",
    "to_tokens",
    "upcast",
    "vocab_cross_entropy",
    "vocab_embedding",
]
