"""The first module of the source whose result the one-device program does not give."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from graphpar.verify.batches import Batches, Size
from graphpar.verify.capture_checks import rounding
from graphpar.verify.compare import relative, size
from graphpar.verify.origin import Origin
from graphpar.verify.report import Difference
from graphpar.verify.single import Single
from graphpar.verify.statements import forward_line

Results = dict[str, list[Tensor]]  # by module path; one for each call


def locate_module(
    origin: Origin, model: nn.Module, single: Single, batches: Batches, size_: Size, text: str
) -> Difference | None:
    """Compare what the modules of both return, innermost first as they finish; None if all agree.

    `text` is the model.py that a person has before them: of the build, not of the one-device program.
    """
    batch, program = batches.draw(size_), single.program
    ours, theirs = single.model(None), model
    watched = [name for name, m in ours.named_modules() if name and type(m).__module__ == "model"]
    with torch.no_grad():
        found = _results(ours, watched, lambda: single.loss(ours, batch))
        wanted = _results(theirs, watched, lambda: origin.loss(theirs, batch))
    for name in wanted:
        calls = list(zip(found.get(name, []), wanted[name], strict=False))
        error = max((relative(a, b, size(b)) for a, b in calls if a.shape == b.shape), default=0.0)
        if not error <= rounding(program):
            cls = type(ours.get_submodule(name)).__name__
            line = forward_line(text, cls)
            how = f"the captured program differs from the source by {error:.1e} of the largest element"
            return Difference(f"what {name} returns", how, (), line, cls, "", (line,) if line else (), None)
    return None


def _results(model: nn.Module, names: list[str], run: Any) -> Results:
    found: Results = {}

    def note(name: str) -> Any:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            del module, inputs
            first = output[0] if isinstance(output, tuple | list) and output else output
            if isinstance(first, Tensor):
                found.setdefault(name, []).append(first.detach().clone())

        return hook

    known = dict(model.named_modules())
    handles = [known[name].register_forward_hook(note(name)) for name in names if name in known]
    try:
        run()
    finally:
        for handle in handles:
            handle.remove()
    return found
