"""A source to a captured graph, or to what is wrong with the model."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout

from torch import nn

from graphpar.capture.capture import Captured, capture
from graphpar.errors import GraphparError, raise_if_any
from graphpar.sources.coverage import check, fixed_sizes
from graphpar.sources.failures import explain, made, one_size_only
from graphpar.sources.source import Source


def capture_source(source: Source) -> Captured:
    """Capture the training loss of a model.

    Raises GraphparError, of kind `model`, if the model cannot be built or captured, or if some of it takes no part in
    the loss.
    """
    built: list[nn.Module] = []

    def construct() -> nn.Module:
        built.append(made(source.label, source.construct))
        return built[-1]

    with _without_noise():
        try:
            captured = capture(construct, source.signature)
        except GraphparError:
            raise
        except Exception as error:
            if not built:
                raise
            raise GraphparError(explain(error, built[-1], source.signature, source.forward)) from error
    for dim, size in fixed_sizes(captured):
        raise GraphparError(one_size_only(built[-1], source.signature, dim, size, source.forward))
    raise_if_any(check(captured))
    return captured


@contextmanager
def _without_noise() -> Iterator[None]:
    """Without log lines; what the model or the export machinery prints is shown if the capture succeeds."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    said = io.StringIO()
    try:
        with redirect_stdout(said), redirect_stderr(said):
            yield
        sys.stderr.write(said.getvalue())
    finally:
        logging.disable(disabled)
