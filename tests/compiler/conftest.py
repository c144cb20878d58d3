"""Settings of the tests of the compiler."""

import pytest
import torch

torch.set_num_threads(1)  # the models are tiny: more threads only wait for each other


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes more than ten seconds on an idle machine")
