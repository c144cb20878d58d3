"""Operations that move elements and leave them as they are."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from graphpar.check.constants import Positions
from graphpar.check.contraction import check_whole
from graphpar.check.dims import (
    ONE,
    Dim,
    Factor,
    Wrong,
    cut_by,
    dimension,
    length,
    part,
    product,
    repeated,
    single,
    split,
    whole,
)
from graphpar.check.rules import number, rule
from graphpar.check.value import Value, meet, together


@rule(".unflatten")
def unflatten(x: Value, dim: int, sizes: Sequence[int]) -> Value:
    """One dimension as several."""
    dim = x.at(dim)
    return x.shaped((*x.dims[:dim], *split(x.dims[dim], _sizes(length(x.dims[dim]), sizes)), *x.dims[dim + 1 :]))


def _sizes(total: int, sizes: Sequence[int]) -> list[int]:
    known = prod(n for n in sizes if n != -1)
    found = [total // known if n == -1 and known else n for n in sizes]
    if prod(found) != total:
        raise Wrong(f"{total} elements do not fill {' x '.join(map(str, sizes))}")
    return found


@rule(".flatten", "torch.flatten")
def flatten(x: Value, start_dim: int = 0, end_dim: int = -1) -> Value:
    """Several dimensions as one."""
    start, end = x.at(start_dim), x.at(end_dim)
    return x.shaped((*x.dims[:start], product(x.dims[start : end + 1]), *x.dims[end + 1 :]))


@rule(".reshape", ".view", "torch.reshape")
def reshape(x: Value, *sizes: Any) -> Value:
    """Dimensions as others: where the products of some are equal, those are flattened and split again."""
    wanted = _sizes(prod(map(length, x.dims)), sizes[0] if isinstance(sizes[0], (tuple, list)) else sizes)
    found: list[Dim] = []
    left, new = list(x.dims), list(wanted)
    while left or new:
        old, sizes_ = _group(left, new)
        found += split(product(old) if old else ONE, sizes_)
        left, new = left[len(old) :], new[len(sizes_) :]
    return x.shaped(found)


def _group(old: Sequence[Dim], new: Sequence[int]) -> tuple[list[Dim], list[int]]:
    """The fewest leading dimensions and sizes that hold as many elements."""
    a, b = min(1, len(old)), min(1, len(new))
    while (have := prod(map(length, old[:a]))) != (want := prod(new[:b])):
        if have < want:
            a += 1
        else:
            b += 1
    return list(old[:a]), list(new[:b])


@rule(".view_as", ".reshape_as")
def reshape_as(x: Value, other: Value) -> Value:
    """As another is."""
    return reshape(x, *map(length, other.dims))


@rule(".transpose", "torch.transpose", ".swapaxes")
def transpose(x: Value, a: int, b: int) -> Value:
    """Two dimensions swapped."""
    order = list(range(len(x.dims)))
    order[x.at(a)], order[x.at(b)] = x.at(b), x.at(a)
    return x.shaped(x.dims[i] for i in order)


@rule(".permute", "torch.permute")
def permute(x: Value, *order: Any) -> Value:
    """Dimensions in another order."""
    numbers = order[0] if isinstance(order[0], (tuple, list)) else order
    if sorted(x.at(n) for n in numbers) != list(range(len(x.dims))):
        raise Wrong(f"{x} has not the dimensions {tuple(numbers)}")
    return x.shaped(x.dims[x.at(n)] for n in numbers)


@rule(".movedim", "torch.movedim")
def movedim(x: Value, source: int, destination: int) -> Value:
    """One dimension moved."""
    dims = list(x.dims)
    dims.insert(x.at(destination), dims.pop(x.at(source)))
    return x.shaped(dims)


@rule(".T")
def reverse(x: Value) -> Value:
    """All dimensions in reverse."""
    return x.shaped(reversed(x.dims))


@rule(".mT")
def matrix_transpose(x: Value) -> Value:
    """The last two dimensions swapped."""
    return transpose(x, -1, -2)


@rule(".unsqueeze", "torch.unsqueeze")
def unsqueeze(x: Value, dim: int) -> Value:
    """A dimension of size 1 more."""
    at = dim % (len(x.dims) + 1)
    return x.shaped((*x.dims[:at], ONE, *x.dims[at:]))


@rule(".squeeze", "torch.squeeze")
def squeeze(x: Value, dim: int) -> Value:
    """A dimension of size 1 less."""
    at = x.at(dim)
    if not single(x.dims[at]):
        raise Wrong(f"dimension {dim} of {x} has more than one element")
    return x.shaped((*x.dims[:at], *x.dims[at + 1 :]))


@rule(".expand", ".broadcast_to")
def expand(x: Value, *sizes: Any) -> Value:
    """Dimensions of size 1 repeated."""
    wanted = sizes[0] if isinstance(sizes[0], (tuple, list)) else sizes
    dims = [ONE] * (len(wanted) - len(x.dims)) + list(x.dims)
    found: list[Dim] = []
    for dim, size in zip(dims, wanted, strict=True):
        if size not in (-1, length(dim)) and not single(dim):
            raise Wrong(f"{x} does not expand to {tuple(wanted)}")
        found.append(repeated(size) if single(dim) and size != -1 else dim)
    return x.shaped(found)


@rule(".expand_as")
def expand_as(x: Value, other: Value) -> Value:
    """As large as another."""
    return expand(x, *(length(dim) for dim in other.dims))


@rule(".repeat_interleave", "torch.repeat_interleave")
def repeat_interleave(x: Value, repeats: int, dim: int, **_: Any) -> Value:
    """Each element several times in a row."""
    at = x.at(dim)
    inner = [[*segment, Factor(repeats, same=True)] for segment in x.dims[at]]
    return x.shaped((*x.dims[:at], dimension(inner), *x.dims[at + 1 :]))


@rule(".repeat", "torch.tile")
def repeat(x: Value, *times: Any) -> Value:
    """All of it several times."""
    each = times[0] if isinstance(times[0], (tuple, list)) else times
    dims = [ONE] * (len(each) - len(x.dims)) + list(x.dims)
    return x.shaped(product([whole(n), dim]) if n != 1 else dim for n, dim in zip(each, dims, strict=True))


@rule(".chunk", "torch.chunk")
def chunk(x: Value, chunks: int, dim: int = 0) -> tuple[Value, ...]:
    """Equal parts."""
    size, rest = divmod(length(x.dims[x.at(dim)]), chunks)
    if rest:
        raise Wrong(f"dimension {dim} of {x} has no {chunks} equal parts")
    return split_at(x, size, dim)


@rule(".split", "torch.split")
def split_at(x: Value, sizes: Any, dim: int = 0) -> tuple[Value, ...]:
    """Parts of given sizes."""
    at = x.at(dim)
    total = length(x.dims[at])
    each = [min(sizes, total - i) for i in range(0, total, sizes)] if isinstance(sizes, int) else list(sizes)
    if sum(each) != total:
        raise Wrong(f"parts of {each} do not make dimension {dim} of {x}")
    starts = [sum(each[:i]) for i in range(len(each))]
    return tuple(narrow(x, at, start, size) for start, size in zip(starts, each, strict=True))


@rule(".narrow", "torch.narrow")
def narrow(x: Value, dim: int, start: int, length: int) -> Value:
    """Elements of a dimension."""
    at = x.at(dim)
    return x.shaped((*x.dims[:at], part(x.dims[at], start, start + length), *x.dims[at + 1 :]))


@rule(".unbind", "torch.unbind")
def unbind(x: Value, dim: int = 0) -> tuple[Value, ...]:
    """Every element of a dimension."""
    at = x.at(dim)
    check_whole(x, at, "each element")
    return tuple(x.shaped((*x.dims[:at], *x.dims[at + 1 :])) for _ in range(length(x.dims[at])))


@rule("torch.cat", "torch.concat")
def cat(values: Sequence[Value], dim: int = 0) -> Value:
    """One after the other."""
    at = values[0].at(dim)
    joined = dimension([segment for v in values for segment in v.dims[at]])
    rest = [together(dims, values) for dims in zip(*(v.dims[:at] + v.dims[at + 1 :] for v in values), strict=True)]
    return meet(values, (*rest[:at], joined, *rest[at:]), "add")


@rule("torch.stack")
def stack(values: Sequence[Value], dim: int = 0) -> Value:
    """Side by side in a new dimension."""
    return cat([unsqueeze(v, dim) for v in values], dim)


@rule("F.pad", "torch.nn.functional.pad")
def pad(x: Value, widths: Sequence[int], mode: str = "constant", value: float = 0) -> Value:
    """More elements at the ends of the last dimensions."""
    del mode
    dims = list(x.dims)
    for i in range(0, len(widths), 2):
        at = len(dims) - 1 - i // 2
        if any(widths[i : i + 2]):
            check_whole(x, at, "an end")
            dims[at] = whole(length(dims[at]) + sum(widths[i : i + 2]))
    if x.partial and value:
        raise Wrong(f"{x} is still to be summed: {value} would be added once per rank")
    return x.shaped(dims)


@rule(".roll", "torch.roll", ".flip", "torch.flip")
def move(x: Value, *where: Any, dims: Any = None) -> Value:
    """The same elements elsewhere along whole dimensions."""
    numbers = where[-1] if dims is None else dims
    for n in numbers if isinstance(numbers, (tuple, list)) else (numbers,):
        check_whole(x, x.at(n), "another element")
    return x


@rule(".tril", ".triu", "torch.tril", "torch.triu")
def triangle(x: Value, diagonal: int = 0) -> Value:
    """Zeros on one side of a diagonal of the last two dimensions."""
    del diagonal
    for at in (-1, -2):
        check_whole(x, x.at(at), "a diagonal")
    return x


def select(x: Value, index: Any) -> Value:
    """x[index] for numbers, slices, None, an ellipsis and one tensor of numbers, or a number for each row."""
    if isinstance(index, tuple) and len(index) == 2 and isinstance(index[0], Positions):
        return _of_rows(x, *index)
    items = list(index) if isinstance(index, tuple) else [index]
    if Ellipsis in items:
        at = items.index(Ellipsis)
        taken = sum(item is not None for item in items) - 1
        items[at : at + 1] = [slice(None)] * (len(x.dims) - taken)
    dims: list[Dim] = []
    left = list(x.dims)
    used: list[Value] = []
    for item in items:
        if item is None:
            dims.append(ONE)
            continue
        if not left:
            raise Wrong(f"{x} has not so many dimensions")
        dims += _selected(x, left.pop(0), item, used, left)
    return meet([x, *used], (*dims, *left), "other" if used else "add")


def _of_rows(x: Value, rows: Positions, at: Any) -> Value:
    """x[torch.arange(rows), at]: one element of each row."""
    if not isinstance(at, Value) or len(at.dims) != 1 or length(rows.dims[0]) != length(x.dims[0]):
        raise Wrong(f"{x} by {rows} and {at} is not followed: it is not one element of every row")
    check_whole(x, 1, "any element")
    return meet([x, at], (together([x.dims[0], at.dims[0]], [x, at]), *x.dims[2:]), "other")


def _selected(x: Value, dim: Dim, item: Any, used: list[Value], after: list[Dim]) -> Sequence[Dim]:
    if isinstance(item, slice):
        return [_sliced(x, dim, item)]
    if isinstance(item, Value):
        if used or cut_by(dim):
            raise Wrong(f"{x} by {item} is not followed: {'a second index' if used else 'the dimension is cut'}")
        used.append(item)
        return item.dims
    at = number(item, "an index") % max(length(dim), 1)
    element = part(dim, at, at + 1)
    if not cut_by(element):
        return []
    if not after:
        raise Wrong(f"element {item} of {x} is another element on each rank")
    after[0] = product([element, after[0]])  # a cut factor of one element is the outermost of what follows
    return []


def _sliced(x: Value, dim: Dim, item: slice) -> Dim:
    if item == slice(None):
        return dim
    start, stop, step = item.indices(length(dim))
    if step == 1:
        return part(dim, start, stop)
    if not cut_by(dim):
        return whole(len(range(start, stop, step)))
    segment = dim[0] if len(dim) == 1 else (Factor(1),)
    inside = segment[-1]
    if inside.axes or inside.size % step or start >= step or stop != length(dim):
        raise Wrong(f"every {step}th element of {x} is another element of the whole on each rank")
    return dimension([[*segment[:-1], inside._replace(size=inside.size // step)]])
