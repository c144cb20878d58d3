"""The mesh against the number of ranks that are really there."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from graphpar.errors import Diagnostic, Span, raise_if_any
from graphpar.language.schema import MeshSpec


def world_size(mesh: MeshSpec) -> int | None:
    """How many ranks the mesh has, or None while an axis is `rest`."""
    sizes = mesh.sizes()
    return prod(sizes.values()) if len(sizes) == len(mesh.axes) else None


def check_world(mesh: MeshSpec, world: int) -> tuple[Diagnostic, ...]:
    """What stands between this mesh and `world` ranks: at most one diagnostic."""
    sizes = mesh.sizes()
    ranks = prod(sizes.values())
    product = _equation(sizes)
    rest = next((axis for axis in mesh.axes if axis.size == "rest"), None)
    if rest is not None and world % ranks == 0 and world > 0:
        return ()
    if rest is not None:
        message = f"{world} ranks cannot be shared out: `{rest.name}` would be no whole number"
        multiples = f"{ranks * (world // ranks)} or {ranks * (world // ranks + 1)}" if world > ranks else str(ranks)
        why = f"{rest.name} = {world} / ({product}) = {world / ranks:g}"
        return (Diagnostic("world-size", rest.span, message, why=(why,), fix=f"start {multiples} ranks"),)
    if ranks == world:
        return ()
    fixes = [f"torchrun --nproc-per-node {ranks}"]
    outer = mesh.axes[0]
    others = ranks // sizes[outer.name]
    if world % others == 0 and world >= others:
        fixes.append(f"{outer.name}: rest   # here {world} / {others} = {world // others}")
    message = f"the mesh has {ranks} ranks and {world} were started"
    span = mesh.span if mesh.span.line else None
    return (Diagnostic("world-size", span, message, why=(f"{product}; started: {world}",), fix="\n".join(fixes)),)


def resolve_rest(mesh: MeshSpec, world: int | None) -> MeshSpec:
    """The mesh with a number on every axis.

    `world` None means as many ranks as the mesh says. Raises GraphparError if the numbers do not fit or are not known.
    """
    rest = next((axis for axis in mesh.axes if axis.size == "rest"), None)
    if world is None and rest is not None:
        raise_if_any([_unknown_world(rest.name, rest.span, mesh)])
    if world is None or rest is None:
        raise_if_any(check_world(mesh, world) if world is not None else ())
        return mesh
    raise_if_any(check_world(mesh, world))
    size = world // prod(mesh.sizes().values())
    return replace(mesh, axes=tuple(replace(axis, size=size) if axis is rest else axis for axis in mesh.axes))


def axis_size(mesh: MeshSpec, name: str) -> int:
    """The size of an axis, or of an alias of one or several; the mesh must have no `rest`."""
    sizes = mesh.sizes()
    return prod(sizes[axis] for axis in mesh.expand(name))


def _unknown_world(name: str, span: Span, mesh: MeshSpec) -> Diagnostic:
    others = prod(mesh.sizes().values())
    return Diagnostic(
        "world-unknown",
        span,
        f"`{name}` is `rest`, and the number of ranks is not given",
        why=(f"{name} = ranks / {others}",),
        fix=f"give the number of ranks, or write the size: {name}: 2   # {2 * others} ranks",
    )


def _equation(sizes: dict[str, int]) -> str:
    factors = " * ".join(f"{name} {size}" for name, size in sizes.items())
    return f"{factors} = {prod(sizes.values())}" if len(sizes) > 1 else factors or "1"
