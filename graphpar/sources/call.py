"""How a model is called for training: which of its arguments are token ids, and which are labels."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from graphpar.capture.capture import Signature
from graphpar.errors import Diagnostic, GraphparError, Note, Span, any_of, did_you_mean
from graphpar.language.schema import InputSpec, ModelSpec
from graphpar.sources.choose import place

LABELS = ("labels", "label", "targets", "target", "y")
TOKENS = ("input_ids", "idx", "tokens", "token_ids", "ids", "x", "input", "inputs")
TOKENWISE, PER_ROW = ("batch", "seq"), ("batch",)
_EXAMPLE = "int64[batch=8, seq=128]"


def call_signature(cls: type[nn.Module], spec: ModelSpec | None) -> Signature:
    """The inputs of `cls.forward`: those the spec lists, else the one it requires and its labels.

    Raises GraphparError if that does not come to one input of token ids and one of labels.
    """
    arguments = _arguments(cls)
    loss = spec.loss if spec else None
    if spec is not None and spec.inputs:
        _check_inputs(cls, arguments, spec.inputs)
        per_row = tuple(i.name for i in spec.inputs if _words(i) == PER_ROW)
        return Signature(tuple(i.name for i in spec.inputs), {}, loss, per_row)
    labels = next((name for name in LABELS if name in arguments), None)
    if labels is None:
        raise GraphparError(_no_labels(cls, arguments))
    required = [n for n, p in arguments.items() if p.default is p.empty and n != labels]
    tokens = required or [n for n in TOKENS if n in arguments][:1]
    if len(tokens) != 1:
        raise GraphparError(_which_tokens(cls, arguments, tokens, labels))
    return Signature((tokens[0], labels), {}, loss)


def forward_place(cls: type[nn.Module]) -> Span | None:
    """Where `forward` is written."""
    return place(cls.forward)


def _arguments(cls: type[nn.Module]) -> dict[str, inspect.Parameter]:
    parameters = list(inspect.signature(cls.forward).parameters.values())[1:]
    return {p.name: p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}


def _check_inputs(cls: type[nn.Module], arguments: Mapping[str, Any], inputs: Sequence[InputSpec]) -> None:
    problems: list[Diagnostic] = []
    for at, entry in enumerate(inputs):
        allowed = (TOKENWISE, PER_ROW) if at else (TOKENWISE,)
        if entry.name not in arguments:
            message = f"`forward` of {cls.__name__} has no argument `{entry.name}`{did_you_mean(entry.name, arguments)}"
            problems.append(Diagnostic("bad-model-input", entry.span, message, notes=(_signature(cls),)))
        elif entry.dtype != "int64" or _words(entry) not in allowed:
            described = f"{entry.dtype}[{', '.join(_words(entry))}]"
            why = "the first input is token ids, int64[batch, seq]; then come labels, int64[batch, seq] or int64[batch]"
            fix = f"{entry.name}: {_EXAMPLE}"
            message = f"`{entry.name}` cannot be {described} in this version"
            problems.append(Diagnostic("bad-model-input", entry.span, message, why=(why,), fix=fix))
    if problems:
        raise GraphparError(problems)


def _words(entry: InputSpec) -> tuple[str, ...]:
    return tuple(name for name, _ in entry.axes)


def _no_labels(cls: type[nn.Module], arguments: Mapping[str, Any]) -> Diagnostic:
    first, *others = list(arguments) or ["idx"]
    candidate = others[0] if others else "labels"
    loss = "F.cross_entropy(logits.flatten(0, 1), labels.flatten())"
    fix = f"give `forward` an argument `labels`, and return the loss as well: {loss}"
    if others:
        listed = "\n".join(f"    {name}: {_EXAMPLE}" for name in (first, candidate))
        fix = f"if `{candidate}` are the labels, say so in the spec:\nmodel:\n  inputs:\n{listed}"
    return Diagnostic(
        "no-labels",
        forward_place(cls),
        f"`forward` of {cls.__name__} takes no labels, so it computes no loss",
        why=(f"looked for an argument called {any_of(LABELS)}; it has {' '.join(arguments) or 'none'}",),
        fix=fix,
        kind="model",
    )


def _which_tokens(
    cls: type[nn.Module], arguments: Mapping[str, inspect.Parameter], tokens: Sequence[str], labels: str
) -> Diagnostic:
    listed = "\n".join(f"    {name}: {_EXAMPLE}" for name in (*(tokens or list(arguments)[:1]), labels))
    many = (
        f"it cannot do without {' and '.join(f'`{t}`' for t in tokens)}" if tokens else "every argument has a default"
    )
    return Diagnostic(
        "which-inputs",
        forward_place(cls),
        f"which argument of {cls.__name__}.forward are the token ids?",
        why=(f"{many}; a training batch is token ids and labels, both int64[batch, seq]",),
        fix=f"say it in the spec:\nmodel:\n  inputs:\n{listed}",
        kind="model",
    )


def _signature(cls: type[nn.Module]) -> Note:
    return Note(f"{cls.__name__}.forward{inspect.signature(cls.forward)}", forward_place(cls))
