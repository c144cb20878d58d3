"""What a model does that no graph can say, in its author's terms."""

from __future__ import annotations

from collections.abc import Callable

from graphpar.capture.translate import Unsupported
from graphpar.errors import Diagnostic
from graphpar.sources.frames import whole_line

_RENORM = ("nn.Embedding(max_norm=..) is of this kind: it shortens the rows that it looks up",)
_DERIVED = "the backward of the program is derived from its forward operations, so this would be lost without a word"

# What would not be in the program: the message, why, and the fix.
_LOST: dict[str, Callable[[str], tuple[str, tuple[str, ...], tuple[()], str]]] = {
    "own-backward": lambda name: (
        f"the backward of the autograd function `{name}` is not the derivative of its forward",
        (_DERIVED,),
        (),
        "write it as operations; a gradient that passes straight through is x + (f(x) - x).detach()",
    ),
    "gradient-hook": lambda name: (
        f"{name} has a hook on its gradient",
        (_DERIVED,),
        (),
        "write it as operations: x * s + (x * (1 - s)).detach() has the value of x, and s times its gradient",
    ),
    "always-dropped": lambda name: (
        "something is dropped at random in evaluation too",
        ("the program drops while it trains, and in evaluation never: its held-out loss would be another one",),
        (),
        "drop by nn.Dropout, or by F.dropout(x, p, self.training)",
    ),
    "autocast-region": lambda name: (
        "an autocast region cannot be part of a graph",
        ("which dtype an operation computes in is the program's own choice: train.py --precision",),
        (),
        "write the casts out, x.to(torch.bfloat16) and x.float(), or leave the region out",
    ),
}


def unsupported(error: Unsupported) -> Diagnostic:
    """The diagnostic of something that capture refuses."""
    place = whole_line(error.file, error.line) if error.file else None
    match error.kind:
        case "buffer-updated":
            return Diagnostic(
                "buffer-updated",
                place,
                f"`forward` changes the buffer `{error.name}`",
                why=(
                    "each rank computes with its own part of the tokens, so the ranks' copies of it would drift apart",
                    "running statistics, as BatchNorm keeps them, are of this kind",
                ),
                fix="keep what is counted or averaged outside of the model; normalise with LayerNorm or RMSNorm",
                kind="model",
            )
        case "in-place-on-view":
            return Diagnostic(
                "in-place-on-view",
                place,
                f"{'an assignment' if error.name == 'copy' else f'`{error.name}_`'} writes into a part of a tensor",
                why=("a graph computes new tensors and changes none, and here it is not plain what else changes",),
                fix="compute the whole instead: x = torch.where(mask, value, x), or torch.cat of its parts",
                kind="model",
            )
        case "parameter-updated":
            return Diagnostic(
                "parameter-updated",
                place,
                f"`forward` changes the parameter `{error.name}`",
                why=("each rank would change its own copy, by its own part of the tokens", *_RENORM),
                fix="compute with a changed value instead: F.linear(x, weight / weight.norm(dim=1, keepdim=True))",
                kind="model",
            )
        case "own-backward" | "gradient-hook" | "always-dropped" | "autocast-region":
            return Diagnostic(error.kind, place, *_LOST[error.kind](error.name), kind="model")
        case _:
            return Diagnostic(
                error.kind,
                place,
                f"`{error.name}` cannot be part of a graph",
                why=("it holds code of its own (a branch, a loop) that graphpar does not look into",),
                fix="write its content out, or leave it out of training",
                kind="model",
            )
