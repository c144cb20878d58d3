"""What collectives do to a value and to its gradient, and what is left of them without a rule: as tables of words.

The source of the pairs is the adjoint rule of `graphpar.place.transitions`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Law:
    """What happens to the value, and what to its gradient."""

    forward: str
    backward: str


_GIVEN = "every rank has the value: nothing is sent"
_INSIDE = "the op computes it from its part and from what the other ranks say of theirs"

LAWS = {
    "all_gather": Law(
        "each rank gets the parts of all",
        "each rank has a gradient for all of it, and these are summands: they are added, and each rank keeps its part",
    ),
    "all_gather_same": Law(
        "each rank gets the parts of all",
        "every rank has the same gradient, and keeps its part of it: nothing is sent",
    ),
    "reduce_scatter": Law(
        "the summands are added, and each rank keeps its part of the sum",
        "each summand has the gradient of the whole sum: each rank gets the parts of all",
    ),
    "all_reduce": Law("the summands are added", "the gradient of the sum is that of each summand: nothing is sent"),
    "all_reduce_max": Law("the largest of all is taken", "nothing is sent"),
    "grad_all_reduce": Law(_GIVEN, "each rank has the gradient of its own part of the work, a summand: they are added"),
    "slice_": Law(
        "each rank takes its part of what it has: nothing is sent",
        "each rank has the gradient of its part: each rank gets the parts of all",
    ),
    "all_to_all": Law(
        "each rank sends to each other rank what that one works on",
        "gradients go back the way that the values came",
    ),
    "cross_entropy": Law(
        "each rank has the logits of its part of the classes: the largest and the sums of exponentials are exchanged",
        "each rank computes the gradient of its own logits: nothing is sent",
    ),
    "layer_norm": Law(
        "each rank has a part of each row: mean and variance of the parts are exchanged",
        "the two means in the gradient run over all of the row: they are added",
    ),
    "rms_norm": Law(
        "each rank has a part of each row: the sums of squares are added",
        "the mean in the gradient runs over all of the row: it is added",
    ),
    "softmax": Law(
        "each rank has a part of each row: the largest values and the sums of exponentials are exchanged",
        "the sum in the gradient runs over all of the row: it is added",
    ),
    "send": Law(
        "the stage that computes it is on another rank than the stage that reads it: it is sent",
        "its gradient goes back to the stage that computed it",
    ),
    "gradients": Law(
        "", "each rank has a summand of the gradient: once in a step, after the last backward, they are added"
    ),
    "shared": Law(
        "",
        "stages on several ranks read it, and each has its own: once in a step the gradients of all are added",
    ),
}
QUIET = (
    "all_reduce",
    "all_reduce_max",
    "all_gather_same",
    "cross_entropy",
)  # nothing is sent for their gradient
OTHER = Law(_INSIDE, _INSIDE)

# What is left without the rule of a cause: by op and by the cause's role. `{dim}` is what the rule cuts, `{axis}` the
# mesh axis, `{reader}` the op that needs the value, `{had}` the dimension that the value comes cut by.
WITHOUT = {
    (
        "all_gather",
        "made",
    ): "the value is not cut by {dim}; what is left is the sum of its gradient, in the backward pass",
    ("all_gather", "needed"): "{reader} does not cut {dim} along {axis}, and has no need of all of {had}",
    ("all_gather_same", "made"): "the value is not cut by {dim}, and there is nothing to gather",
    ("reduce_scatter", "made"): "{dim} is not cut, and no sum over it is left to take",
    ("reduce_scatter", "needed"): "nothing cuts the sum: an all_reduce takes its place",
    ("all_reduce", "made"): "{dim} is not cut, and no sum over it is left to take",
    ("all_reduce_max", "made"): "{dim} is not cut, and no maximum over it is left to take",
    ("grad_all_reduce", "needed"): "{reader} does not cut {dim} along {axis}: each rank has the whole gradient",
    ("slice_", "needed"): "{reader} does not cut {dim} along {axis}: no part is taken, and no gradient gathered",
    ("all_to_all", "made"): "the value does not come cut by {dim}, and no rank has what another one works on",
    ("all_to_all", "needed"): "{reader} does not cut {dim} along {axis}, and no rank works on what another one has",
    ("send", "needed"): "the whole model is one stage, and nothing is sent",
    ("shared", "use"): "the whole model is one stage, and there is one gradient",
    ("gradients", "use"): "{reader} does not cut {dim} along {axis}, and leaves no summand there",
}
INSIDE = "{dim} is not cut along {axis}, and the op has all of it"
