"""The modules of a picture: as a tree, and each as a picture of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from graphpar.viz.dot import MONO, SANS, dot
from graphpar.viz.heading import Heading
from graphpar.viz.outline import outlined
from graphpar.viz.overview import drawn
from graphpar.viz.part import alone, modules
from graphpar.viz.picture import Exchange, Module, Picture

OVERVIEW = "overview"  # the name of the picture that a page opens with


def tree(module: Module) -> dict[str, Any]:
    """A module with those below it, and the mesh axes that it communicates over."""
    below = [tree(item) for item in module.items if isinstance(item, Module)]
    own = [axis for item in module.items if isinstance(item, Exchange) for axis in item.axis.split()]
    return {
        "id": module.id,
        "path": module.path,
        "cls": module.cls,
        "members": module.members,
        "over": list(dict.fromkeys([*own, *(axis for child in below for axis in child["over"])])),
        "items": below,
    }


def pictures(picture: Picture) -> dict[str, Picture]:
    """Pictures by name: the whole, layers that are alike folded, and each module by its id."""
    below = (module for module in modules(picture.root) if module.id != picture.root.id)
    return {OVERVIEW: outlined(picture), **{module.id: alone(picture, module) for module in below}}


def texts(pictures: Mapping[str, Picture], heading: Heading) -> dict[str, str]:
    """The DOT text of each."""
    return {name: _text(name, picture, heading) for name, picture in pictures.items()}


def _text(name: str, picture: Picture, heading: Heading) -> str:
    """The DOT text, without what the page says itself.

    The layout in a page knows the widths of a few fonts only, and counts a fixed space as two letters.
    """
    bare = replace(heading, facts=(), layout=())
    of_module = replace(bare, model=picture.root.path, source=picture.root.cls, gradients=())
    text = drawn(picture, bare) if name == OVERVIEW else dot(picture, of_module)
    return text.replace(MONO, "Courier").replace(SANS, "Arial").replace("&#160;", " ")
