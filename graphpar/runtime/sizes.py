"""The expressions in plan.json for sizes that depend on the batch.

They are read here rather than by `ast`, which two threads of Python 3.11 cannot use at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import NoReturn

_TOKEN = re.compile(r"\s*(\d+|[A-Za-z_]\w*|\*\*|//|\S)")


def size(expression: str, values: Mapping[str, int]) -> int:
    """The value of sums, products, quotients and powers of integers and names.

    Raises ValueError if it is no integer, or has anything else in it.
    """
    reader = _Reader(expression, values)
    found = reader.sum()
    if reader.next or found.denominator != 1:
        reader.refuse()
    return int(found)


class _Reader:
    """Reads one expression from left to right."""

    def __init__(self, expression: str, values: Mapping[str, int]) -> None:
        self._expression = expression
        self._values = values
        self._tokens = iter([*_TOKEN.findall(expression), ""])
        self.next = next(self._tokens)

    def refuse(self) -> NoReturn:
        where = ", ".join(f"{name}={value}" for name, value in self._values.items())
        raise ValueError(f"{self._expression!r} is no size for {where}")

    def take(self, *tokens: str) -> str:
        """The next token, if it is one of these."""
        token = self.next
        if token not in tokens:
            return ""
        self.next = next(self._tokens)
        return token

    def sum(self) -> Fraction:
        total = self.product()
        while sign := self.take("+", "-"):
            term = self.product()
            total = total + term if sign == "+" else total - term
        return total

    def product(self) -> Fraction:
        total = self.signed()
        while sign := self.take("*", "/", "//"):
            factor = self.signed()
            if sign != "*" and not factor:
                self.refuse()
            total = total * factor if sign == "*" else total / factor if sign == "/" else Fraction(total // factor)
        return total

    def signed(self) -> Fraction:
        return -self.signed() if self.take("-") else self.power()

    def power(self) -> Fraction:
        base = self.atom()
        if not self.take("**"):
            return base
        exponent = self.signed()
        if exponent.denominator != 1 or not 0 <= exponent <= 9:
            self.refuse()
        return base ** int(exponent)

    def atom(self) -> Fraction:
        if self.take("("):
            inside = self.sum()
            if not self.take(")"):
                self.refuse()
            return inside
        token = self.take(self.next) if self.next else ""
        if not token.isdigit() and token not in self._values:
            self.refuse()
        return Fraction(int(token) if token.isdigit() else self._values[token])
