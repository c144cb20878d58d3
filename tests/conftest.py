"""Goldens: a text that is compared with a file of the repository, and rewritten on request."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

# The models are tiny: more threads only wait for each other. Read by torch when it loads, here and in what tests start.
os.environ["OMP_NUM_THREADS"] = "1"

Golden = Callable[[Path, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files instead of comparing with them")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one model run in one process, which captures it once."""
    for item in items:
        parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        name = getattr(parameters.get("model"), "name", parameters.get("model"))
        if isinstance(name, str) and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(name))


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """`golden(path, text)`: the file holds exactly this text."""
    update = bool(request.config.getoption("--update-golden"))

    def check(path: Path, text: str) -> None:
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"{path} is missing; pytest --update-golden writes it"
        assert text == path.read_text(encoding="utf-8"), f"{path} differs; pytest --update-golden rewrites it"

    return check
