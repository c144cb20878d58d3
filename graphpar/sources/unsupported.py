"""What a model does that no graph can say, in its author's terms."""

from __future__ import annotations

from graphpar.capture.translate import Unsupported
from graphpar.errors import Diagnostic
from graphpar.sources.frames import whole_line


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
        case _:
            return Diagnostic(
                error.kind,
                place,
                f"`{error.name}` cannot be part of a graph",
                why=(
                    "it holds code of its own (a branch, a loop, an autocast region) that graphpar does not look into",
                ),
                fix="write its content out, or leave it out of training",
                kind="model",
            )
