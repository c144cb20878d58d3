"""Why a transition is there, in a few words."""

from __future__ import annotations


def reason(
    op: str, axis: str, *, leaf: str, claim: str | None, summed: str, had: str, part: str | None, counts: bool
) -> str:
    """The reason of a transition over a mesh axis.

    `leaf` is the module that needs it, `claim` what it cuts, `summed` what a pending sum runs over, `had` the dimension
    that was cut before, `part` the one that is cut after; `counts` says that the value counts rows by expert.
    """
    match op:
        case "grad_all_reduce":
            return f"each rank of {axis} has its own part of {claim}" if claim else f"used on every rank of {axis}"
        case "all_reduce" | "all_reduce_max":
            return f"the sum over {summed}"
        case "reduce_scatter":
            return f"the sum over {summed}, cut by {claim}"
        case "all_gather" | "all_gather_same":
            return f"{leaf} cuts {claim}, so it needs all of {had}" if claim else f"{leaf} needs all of {had}"
        case "first_only":
            return f"whole on each rank of {axis}, and counted once"
        case "all_to_all" if counts:
            return "how many rows go where"
        case "all_to_all" if had == "experts":
            return "each row back to its token"
        case "all_to_all" if claim == part == "experts":
            return "each row to its expert"
        case "all_to_all":
            return f"{leaf} cuts {claim}"
        case "pad_partial":
            return f"the sum over {had}"
        case _:
            return f"this rank's part of {part or claim}"
