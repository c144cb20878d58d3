"""Sizes as Python: whole numbers, and numbers that are rounded to whole ones as the source rounds them."""

from __future__ import annotations

import re
from typing import Any

import sympy
from sympy.printing.str import StrPrinter

_PYTHON = {"Max": "max", "Min": "min", "/": " // ", "//": " // "}
_WORD = re.compile(r"Max\b|Min\b|//?")
_ROUNDING = {"CeilToInt": "math.ceil", "FloorToInt": "math.floor", "TruncToInt": "int", "RoundToInt": "round"}
_QUOTIENTS = ("FloatTrueDiv", "IntTrueDiv")


def rounds(size: sympy.Basic) -> bool:
    """Whether a size is made of numbers that are not whole: their order of operations is the source's."""
    return any(type(f).__name__ in (*_ROUNDING, *_QUOTIENTS, "ToFloat") for f in size.atoms(sympy.Function))


def spell(size: sympy.Basic) -> tuple[str, bool]:
    """A size as an expression, and whether it needs brackets among operators."""
    loose = bool(size.is_Add or size.is_Mul or size.is_Pow)
    if rounds(size):
        text: str = _Rounded().doprint(size)
        return text, loose or type(size).__name__ in _QUOTIENTS
    return _WORD.sub(lambda word: _PYTHON[word.group()], str(size)), loose


class _Rounded(StrPrinter):
    """Prints what torch calls `CeilToInt(FloatTrueDiv(2.0*ToFloat(seq), 8.0))` as `math.ceil(2.0*seq / 8.0)`."""

    def _print_Function(self, expr: Any) -> str:  # noqa: N802  sympy's own word
        name = type(expr).__name__
        args: list[str] = [self._print(a) for a in expr.args]
        if name in _ROUNDING:
            return f"{_ROUNDING[name]}({args[0]})"
        if name == "ToFloat":
            return args[0] if expr.args[0].is_Symbol else f"({args[0]})"
        if name in _QUOTIENTS:
            return " / ".join(f"({a})" if one.is_Add else a for one, a in zip(expr.args, args, strict=True))
        return super()._print_Function(expr)

    def _print_Float(self, expr: Any) -> str:  # noqa: N802  sympy's own word
        return repr(float(expr))

    def _print_Max(self, expr: Any) -> str:  # noqa: N802  sympy's own word
        return f"max({', '.join(map(self._print, expr.args))})"

    def _print_Min(self, expr: Any) -> str:  # noqa: N802  sympy's own word
        return f"min({', '.join(map(self._print, expr.args))})"
