"""What the draws have found stays a test: an expected failure until it is mended, and a claim from then on."""

from __future__ import annotations

from typing import Any

import pytest
from found import FOUND, Found
from law import Drawn, refusal


def case_of(name: str, found: Found) -> Any:
    """Strict: who mends it takes the reason out of the table."""
    marks = [pytest.mark.xfail(reason=found.reason, strict=True)] if found.reason else []
    return pytest.param(found, id=name.replace(" ", "-"), marks=marks)


@pytest.mark.parametrize("found", [case_of(name, found) for name, found in FOUND.items()])
def test_what_a_draw_has_found(found: Found) -> None:
    assert refusal(Drawn(found.choices), found.layout) is None


@pytest.mark.parametrize("found", [pytest.param(f, id=n.replace(" ", "-")) for n, f in FOUND.items()])
def test_what_was_found_is_like_itself(found: Found) -> None:
    assert found.like(found.choices, found.layout)
