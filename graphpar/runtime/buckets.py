"""Which gradients are summed together, and in which order: known from the parameters alone."""

from collections.abc import Sequence
from dataclasses import dataclass

BUCKET_BYTES = 25 << 20
LARGE = 4 << 20  # bytes; from here on, to copy a gradient into a bucket costs more than a collective of its own


@dataclass(frozen=True)
class Gradient:
    """A gradient that is to be summed over mesh axes."""

    name: str
    axes: tuple[str, ...]  # those of size > 1, outermost first
    dtype: str
    bytes: int  # in the dtype of the sum


def buckets(gradients: Sequence[Gradient], bucket_bytes: int = BUCKET_BYTES) -> list[list[Gradient]]:
    """Gradients, given in declaration order, as buckets in the order of their sums; each bucket is one all-reduce.

    Backward fills gradients from the last parameter to the first, so buckets are filled and ordered that way: a bucket
    comes where its last gradient does. One bucket has one set of axes and one dtype; it is closed when the next
    gradient would make it larger than `bucket_bytes`. A large gradient is a bucket by itself, which needs no copy.
    """
    closed: list[tuple[int, list[Gradient]]] = []
    filling: dict[tuple[tuple[str, ...], str], tuple[int, list[Gradient]]] = {}
    for position, gradient in enumerate(reversed(gradients)):
        if not gradient.axes:
            continue
        if gradient.bytes >= LARGE:
            closed.append((position, [gradient]))
            continue
        key = gradient.axes, gradient.dtype
        members = filling[key][1] if key in filling else []
        if members and sum(g.bytes for g in members) + gradient.bytes > bucket_bytes:
            closed.append(filling[key])
            members = []
        members.append(gradient)
        filling[key] = position, members
    return [members for _, members in sorted([*closed, *filling.values()], key=lambda bucket: bucket[0])]
