"""ATen to graphpar: one spelling per idea. The only table that knows ATen's names."""

from __future__ import annotations

from graphpar.capture.aten.call import Handler
from graphpar.capture.aten.choices import CHOICES
from graphpar.capture.aten.elements import (
    bitwise_not,
    cast,
    clamp,
    copied,
    divide,
    dropout,
    floor_divide,
    gelu,
    logical,
    masked_fill,
    pointwise,
    same,
    scaled,
    softplus,
    subtracted,
)
from graphpar.capture.aten.products import (
    addmm,
    along,
    cross_entropy,
    cumsum,
    einsum,
    embedding,
    layer_norm,
    linear,
    matmul,
    reduction,
    rms_norm,
    sdpa,
    variance,
)
from graphpar.capture.aten.shapes import (
    arange,
    diff,
    expand,
    full,
    index,
    joined,
    pad,
    permute,
    pieces,
    repeat_interleave,
    reshape,
    select,
    slice_,
    transpose,
    triangle,
    unbind,
    unsqueeze,
)

_UNARY = (
    "neg exp log log1p expm1 tanh sigmoid relu silu rsqrt sqrt reciprocal cos sin abs erf square isnan "
    "floor ceil round sign detach"
).split()


_COMPARE = "eq ne lt le gt ge".split()


TABLE: dict[str, Handler] = {
    **CHOICES,
    **{f"aten.{op}.default": pointwise(op) for op in _UNARY},
    **{f"aten.{op}.{kind}": pointwise(op) for op in _COMPARE for kind in ("Tensor", "Scalar")},
    **{f"aten.{op}.Tensor": scaled(op) for op in ("add", "sub")},
    **{f"aten.{op}.Scalar": scaled(op) for op in ("add", "sub")},
    **{f"aten.{op}.{kind}": pointwise("and") for op in ("__and__", "bitwise_and") for kind in ("Tensor", "Scalar")},
    **{f"aten.{op}.{kind}": pointwise("or") for op in ("__or__", "bitwise_or") for kind in ("Tensor", "Scalar")},
    **{f"aten.mul.{kind}": pointwise("mul") for kind in ("Tensor", "Scalar")},
    **{f"aten.div.{kind}": divide for kind in ("Tensor", "Scalar", "Tensor_mode", "Scalar_mode")},
    **{f"aten.floor_divide.{kind}": floor_divide for kind in ("default", "Scalar")},
    **{f"aten.remainder.{kind}": pointwise("remainder") for kind in ("Tensor", "Scalar")},
    **{f"aten.pow.{kind}": pointwise("pow") for kind in ("Tensor_Scalar", "Tensor_Tensor", "Scalar")},
    **{f"aten.where.{kind}": pointwise("where") for kind in ("self", "ScalarOther", "ScalarSelf", "Scalar")},
    **{f"aten.masked_fill.{kind}": masked_fill for kind in ("Scalar", "Tensor")},
    **{f"aten.{op}.default": same for op in ("contiguous", "alias", "clone", "lift_fresh", "lift_fresh_copy")},
    **{f"aten.to.{kind}": cast for kind in ("dtype", "dtype_layout", "device", "other")},
    **{f"aten.{op}.default": reshape for op in ("view", "reshape", "_unsafe_view", "squeeze", "view_as", "reshape_as")},
    **{
        f"aten.{op}": reshape
        for op in ("flatten.using_ints", "unflatten.int", "squeeze.dim", "squeeze.dims", "ravel.default")
    },
    **{f"aten.{op}": pieces for op in ("chunk.default", "split.Tensor", "split.sizes", "split_with_sizes.default")},
    **{
        f"aten.{op}": reduction(op.split(".")[0])
        for op in ("sum.dim_IntList", "mean.dim", "amax.default", "amin.default", "sum.default", "mean.default")
        + ("argmax.default", "argmin.default", "any.dim", "any.default", "all.dim", "all.default", "logsumexp.default")
    },
    **{f"aten.var.{kind}": variance for kind in ("dim", "correction", "default")},
    "aten.logical_not.default": logical("logical_not"),
    "aten.logical_and.default": logical("and"),
    "aten.logical_or.default": logical("or"),
    "aten.bitwise_not.default": bitwise_not,
    "aten.maximum.default": pointwise("maximum"),
    "aten.minimum.default": pointwise("minimum"),
    "aten.max.other": pointwise("maximum"),
    "aten.min.other": pointwise("minimum"),
    "aten.rsub.Scalar": subtracted,
    "aten.copy.default": copied,
    "aten.type_as.default": cast,
    "aten._to_copy.default": cast,
    "aten.linear.default": linear,
    "aten.addmm.default": addmm,
    "aten.baddbmm.default": addmm,
    "aten.mm.default": matmul,
    "aten.bmm.default": matmul,
    "aten.matmul.default": matmul,
    "aten.einsum.default": einsum,
    "aten.scaled_dot_product_attention.default": sdpa,
    "aten.cross_entropy_loss.default": cross_entropy,
    "aten.embedding.default": embedding,
    "aten.layer_norm.default": layer_norm,
    "aten.rms_norm.default": rms_norm,
    "aten.softmax.int": along("softmax"),
    "aten.log_softmax.int": along("log_softmax"),
    "aten.gelu.default": gelu,
    "aten.softplus.default": softplus,
    "aten.expand.default": expand,
    "aten.expand_as.default": expand,
    "aten.unsqueeze.default": unsqueeze,
    "aten.transpose.int": transpose,
    "aten.t.default": transpose,
    "aten.mT.default": transpose,
    "aten.numpy_T.default": transpose,
    "aten.permute.default": permute,
    "aten.slice.Tensor": slice_,
    "aten.select.int": select,
    "aten.unbind.int": unbind,
    "aten.cat.default": joined("cat"),
    "aten.stack.default": joined("stack"),
    "aten.repeat_interleave.self_int": repeat_interleave,
    "aten.pad.default": pad,
    "aten.constant_pad_nd.default": pad,
    "aten.arange.default": arange,
    "aten.arange.start": arange,
    "aten.arange.start_step": arange,
    "aten.full.default": full(),
    "aten.full_like.default": full(),
    "aten.new_full.default": full(at=2),
    "aten.fill.Scalar": full(at=1),
    "aten.scalar_tensor.default": full(at=0),
    **{f"aten.{op}.default": full(0) for op in ("zeros", "zeros_like", "new_zeros")},
    **{f"aten.{op}": full(0) for op in ("empty.memory_format", "empty_like.default", "new_empty.default")},  # any value
    **{f"aten.{op}.default": full(1) for op in ("ones", "ones_like", "new_ones")},
    "aten.tril.default": triangle("tril"),
    "aten.triu.default": triangle("triu"),
    "aten.clamp.default": clamp,
    "aten.clamp_min.default": clamp,
    "aten.dropout.default": dropout,
    "aten.cumsum.default": cumsum,
    "aten.diff.default": diff,
    "aten.index.Tensor": index,
}
