"""Why a model cannot be captured, in its author's terms."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from graphpar.capture.capture import NoLoss, Signature, Specialised
from graphpar.capture.translate import Unsupported
from graphpar.errors import Diagnostic, GraphparError, Note, Span
from graphpar.sources.frames import Frame, frames, innermost, ours, path_of
from graphpar.sources.given import notes
from graphpar.sources.probe import SIZES, failure_at
from graphpar.sources.reads import Read, reading
from graphpar.sources.unsupported import unsupported

_VALUE = (DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode)
_SYMBOL = re.compile(r"\bs\d+\b")  # how the export calls a size that is free
_FIXED = re.compile(r"not in VR\[(\d+), \1\]")  # the export found that a size can only be this
_OUTPUT = re.compile(r"(?P<dtype>\w+)\[(?P<shape>[^\]]*)\]")


def made(name: str, construct: Callable[[], object]) -> nn.Module:
    """What a constructor called `name` makes. Raises GraphparError if it fails, or makes something else."""
    try:
        model = construct()
    except _VALUE as error:
        raise GraphparError(_value_in_constructor(name, error)) from error
    except Exception as error:
        raise GraphparError(_raised("constructor-failed", f"{name}()", error, None)) from error
    if not isinstance(model, nn.Module):
        message = f"{name}() returned a value of type {type(model).__name__}, and a model is an nn.Module"
        raise GraphparError(Diagnostic("not-a-module", None, message))
    return model


def explain(error: Exception, model: nn.Module, signature: Signature, forward: Span | None) -> Diagnostic:
    """What is wrong with a model whose capture ended in `error`; `forward` is where it is written."""
    match error:
        case NoLoss():
            return _no_loss(model, forward, error.outputs)
        case Specialised():
            return one_size_only(model, signature, error.dim, error.size, forward)
        case Unsupported():
            return unsupported(error)
        case AssertionError() if fixed := _FIXED.search(str(error)):
            return one_size_only(model, signature, "batch or seq", int(fixed[1]), forward)
        case GuardOnDataDependentSymNode() | DataDependentOutputException() | DynamicOutputShapeException():
            return _value_in_forward(error, model)
        case _ if innermost(error) is None and ours(error):
            raise error  # a mistake in graphpar, not in the model
        case _ if innermost(error) is None:
            return _not_captured(error, forward)
        case _:
            return _raised_in_forward(error, model, signature)


def one_size_only(model: nn.Module, signature: Signature, dim: str, size: int, forward: Span | None) -> Diagnostic:
    """`dim`, which must stay free, can only be `size`; the place is where the model fails at another size."""
    others = next((b, s) for b, s in ((2, 16), (4, 24)) if size not in (b, s))
    error = failure_at(model, signature, others)
    frame = innermost(error) if error else None
    why = ["batch and seq are free: every rank gets its own part of them, and training chooses their sizes"]
    if error:
        why.insert(
            0, f"for batch {others[0]} and seq {others[1]}: {type(error).__name__}: {first_lines(error)}".rstrip(": ")
        )
    else:
        why.insert(0, "a condition in the code, or a loop, depends on it")
    return Diagnostic(
        "one-size-only",
        frame.span if frame else forward,
        f"the model only works for {dim} = {size}{_in(frame, model)}",
        why=tuple(why),
        notes=_called_by(error) if error else (),
        fix="take sizes from the tensors themselves: b, t = idx.shape",
        kind="model",
    )


def _value_in_constructor(name: str, error: Exception) -> Diagnostic:
    frame = innermost(error)
    return Diagnostic(
        "value-in-constructor",
        frame.span if frame else None,
        f"{name}() reads the value of a tensor while it builds the model",
        why=(
            "graphpar builds a model without storage, so that one of any size fits: its tensors have shapes, no values",
            ".item(), .tolist(), int(tensor), float(tensor) and `if tensor:` each need a value",
        ),
        notes=_called_by(error),
        fix="compute the number with Python's own numbers, without a tensor",
        kind="model",
    )


def _value_in_forward(error: Exception, model: nn.Module) -> Diagnostic:
    frame = innermost(error)
    read = reading(frame.span) if frame else Read("value", "")
    text = f"`{read.text}`" if read.text else "a tensor"
    where = _in(frame, model)
    messages = {
        "branch": f"which code runs depends on the values of tensors: {text}{where}",
        "loop": f"how often code runs depends on the values of tensors: {text}{where}",
        "value": f"`forward` reads the value of a tensor as a Python number: {text}{where}",
    }
    fixes = {
        "branch": "compute both ways and choose by element: torch.where(condition, a, b)",
        "loop": "loop over a fixed number, and mask what is not wanted: torch.where(mask, value, 0)",
        "value": "keep it a tensor; a number that never changes belongs into the constructor",
    }
    why = ["the program is written once, for all data, and every rank runs the same text"]
    if _sizes(error):
        why.append(
            "the size of a tensor depends on data here: nonzero(), unique() and x[mask] have as many rows as match"
        )
        fixes["branch"] = fixes["loop"]
    else:
        why.append("each rank has a part of the tokens, so the ranks would see different values and go different ways")
    return Diagnostic(
        "value-in-forward",
        frame.span if frame else None,
        messages[read.kind],
        why=tuple(why),
        notes=_called_by(error),
        fix=fixes[read.kind],
        kind="model",
    )


def _sizes(error: Exception) -> bool:
    """Whether the value that was asked for is the size of a tensor."""
    if isinstance(error, GuardOnDataDependentSymNode):
        return re.search(r"Size-like symbols: (?!none)", str(error)) is not None
    return isinstance(error, DynamicOutputShapeException)


def _no_loss(model: nn.Module, forward: Span | None, outputs: Sequence[str]) -> Diagnostic:
    name = type(model).__name__
    last = next((o for o in outputs if _last_position_only(o)), None)
    why = [f"it returns {', '.join(outputs) or 'no tensor'}; a loss is one number, float32[]"]
    fix = "return the loss as well: F.cross_entropy(logits.flatten(0, 1), labels.flatten())"
    if last is not None:
        why.append(f"{last} has the last position only: the code that generates text ran, not the code that trains")
        fix = "let the spec's `model: inputs:` name the labels too, so that the code that trains runs"
    return Diagnostic("no-loss", forward, f"`forward` of {name} returns no loss", why=tuple(why), fix=fix, kind="model")


def _last_position_only(output: str) -> bool:
    match = _OUTPUT.fullmatch(output)
    sizes = [s.strip() for s in match["shape"].split(",")] if match else []
    return len(sizes) == 3 and sizes[:2] == ["batch", "1"]


def _raised(code: str, what: str, error: Exception, model: nn.Module | None) -> Diagnostic:
    frame = innermost(error)
    return Diagnostic(
        code,
        frame.span if frame else None,
        f"{what} raised {type(error).__name__}{_in(frame, model)}: {first_lines(error)}",
        notes=_called_by(error),
        kind="model",
    )


def _not_captured(error: Exception, forward: Span | None) -> Diagnostic:
    return Diagnostic(
        "not-captured",
        forward,
        f"torch.export cannot capture this model: {type(error).__name__}: {first_lines(error)}",
        notes=(Note("--traceback shows where"),),
        kind="model",
    )


def _raised_in_forward(error: Exception, model: nn.Module, signature: Signature) -> Diagnostic:
    again = failure_at(model, signature)
    if again is not None and type(again) is type(error) and _SYMBOL.search(str(error)):
        error = again  # the same, in numbers instead of the export's symbols
    found = _raised("forward-failed", f"{type(model).__name__}.forward", error, model)
    if again is None:
        batch, seq = SIZES
        text = f"it works for batch {batch} and seq {seq}: perhaps not for every length, or torch.export cannot follow"
        return replace(found, notes=(*found.notes, Note(text)))
    found = replace(found, why=notes(again))
    return replace(found, fix=found.fix or _one_label_per_row(model, signature))


def _one_label_per_row(model: nn.Module, signature: Signature) -> str | None:
    """What to write if the model fails for labels of every token, and works for labels of whole rows."""
    if len(signature.inputs) != 2 or signature.per_row:
        return None
    ids, labels = signature.inputs
    if failure_at(model, replace(signature, per_row=(labels,))) is not None:
        return None
    inputs = f"    {ids}: int64[batch=8, seq=128]\n    {labels}: int64[batch=8]"
    return f"it works with one label per row; say so in the spec:\nmodel:\n  inputs:\n{inputs}"


def first_lines(error: Exception) -> str:
    """What an exception says, without what the export machinery adds below it."""
    text = str(error).strip().partition("\n\n")[0]
    return " ".join(line.strip() for line in text.splitlines()[:3]).rstrip(".")


def _in(frame: Frame | None, model: nn.Module | None) -> str:
    path = path_of(frame.owner, model) if frame else ""
    return f" in {path}" if path else ""


def _called_by(error: Exception) -> tuple[Note, ...]:
    """The call that led there, where it is another function."""
    found = frames(error)
    callers = [f for f in found[:-1] if f.function != "<listcomp>"][-1:]
    return tuple(Note(f"called by {f.function}", f.span) for f in callers if f.span.line != found[-1].span.line)
