"""Sizes that do not divide, with the sizes that would."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from graphpar.errors import Diagnostic, Note
from graphpar.language.schema import LayoutRule

SHOWN = 15  # so many divisors are listed


def divisors(size: int) -> tuple[int, ...]:
    """All divisors of a positive size, in order."""
    low = [n for n in range(1, int(size**0.5) + 1) if size % n == 0]
    return tuple(sorted({*low, *(size // n for n in low)}))


def factorisation(size: int) -> str:
    """`50257 = 29 * 1733`, `96 = 2^5 * 3`; a prime is said to be one."""
    powers: dict[int, int] = {}
    rest, prime = size, 2
    while prime * prime <= rest:
        while rest % prime == 0:
            powers[prime] = powers.get(prime, 0) + 1
            rest //= prime
        prime += 1
    if rest > 1:
        powers[rest] = powers.get(rest, 0) + 1
    if list(powers.values()) == [1]:
        return f"{size} is prime"
    return f"{size} = " + (" * ".join(f"{p}^{n}" if n > 1 else str(p) for p, n in powers.items()) or "1")


def not_divisible(
    rule: LayoutRule,
    size: int,
    parts: int,
    *,
    axes: str = "",
    why: Sequence[str] = (),
    notes: Sequence[Note] = (),
    pad: bool = False,
    mend: str | None = None,
) -> Diagnostic:
    """A dimension of `size` that the mesh axes of `rule`, `parts` ranks together, cannot cut into equal pieces.

    `axes` says how `parts` comes about, such as `cp 2 * tp 4`; `pad` whether padding the dimension is exact; `mend` is
    what to write, where it is not a rule of a list.
    """
    possible = divisors(size)
    shown = [*possible[: SHOWN - 1], possible[-1]] if len(possible) > SHOWN else possible
    dots = " and some between" if len(possible) > SHOWN else ""
    padded = -(-size // parts) * parts
    if pad:
        product = f"{padded} = {parts} * {padded // parts}"
        fix = f"uneven: {{{rule.name}: pad}}   # {product}; the {padded - size} added never count"
    else:
        below = max(n for n in possible if n <= parts)
        fix = f"let the mesh axes of this rule have {below} ranks together" if below > 1 else f"- {rule.name}: none"
    how = axes or " * ".join(rule.axes)
    return Diagnostic(
        "not-divisible",
        rule.span,
        f"`{rule.name}` = {size} cannot be cut into {parts} equal parts ({how} = {parts})",
        why=(
            f"{size} mod {parts} = {size % parts}",
            f"{factorisation(size)}, possible numbers of parts: {' '.join(map(str, shown))}{dots}",
            *why,
        ),
        notes=tuple(notes),
        fix=mend or fix,
    )


def needs_two_axes(
    rule: LayoutRule, kv_heads: int, q_group: int, parts: int, *, notes: Sequence[Note] = ()
) -> Diagnostic:
    """`heads` = kv_heads * q_group over one mesh axis that kv_heads alone cannot fill: the axis has to be two."""
    axis = rule.axes[-1]
    outer = gcd(kv_heads, parts)
    inner = parts // outer
    more: tuple[Note, ...] = ()
    if outer == 1 and q_group % inner == 0:
        fix = f"- q_group: {axis}"
        held = f"keys and values are then whole on all {inner} ranks, and their gradients are summed over {axis}"
    elif q_group % inner == 0:
        second = f"{axis}_q"
        fix = f"mesh: {{{axis}: {outer}, {second}: {inner}}}\nlayout:\n  - kv_heads: {axis}\n  - q_group: {second}"
        held = f"keys and values are then on {inner} ranks each, and their gradients are summed over {second}"
        more = (Note(f"another dimension that {axis} cut can take both axes: [{axis}, {second}]"),)
    else:
        fix = f"{axis}: {outer}" if outer > 1 else f"- {rule.name}: none"
        held = f"{parts} = {outer} * {inner}, and {inner} does not divide q_group {q_group} either"
    return Diagnostic(
        "needs-two-axes",
        rule.span,
        f"`{rule.name}` = kv_heads {kv_heads} * q_group {q_group} cannot be cut by `{axis}` = {parts} as one axis",
        why=(
            f"keys and values have {kv_heads} heads, and {kv_heads} mod {parts} = {kv_heads % parts}",
            "a mesh axis is not divided between two dimensions without being told",
        ),
        notes=(Note(held), *more, *notes),
        fix=fix,
    )
