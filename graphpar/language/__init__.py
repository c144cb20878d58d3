"""The spec language: YAML text to a checked `Spec`, without knowing any model, and the checks that need its names."""

from graphpar.language.dump import dump_spec
from graphpar.language.parse import load_spec, parse_spec
from graphpar.language.schema import LayoutRule, MeshSpec, Moe, Region, Spec
from graphpar.language.selectors import Selector

__all__ = ["LayoutRule", "MeshSpec", "Moe", "Region", "Selector", "Spec", "dump_spec", "load_spec", "parse_spec"]
