"""Mistakes of pipelines: where stages are, what they hold and send, whose microbatch is whose, and what runs when."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from tools.mutants import wrong_stages
from tools.mutants.mutant import Json, Mutant, Patch, Text

RUNTIME = "graphpar.runtime"
SCHEDULED, STAGE, PIPELINE = f"{RUNTIME}.scheduled:Scheduled", f"{RUNTIME}.stage:Stage", f"{RUNTIME}.pipeline:Pipeline"
CSV = "schedule.csv"


def _text(name: str, kind: str, build: str, *edits: tuple[str, ...], **facts: Any) -> Mutant:
    return Mutant(name, kind, build, tuple(Text(*edit) for edit in edits), **facts)


def _csv(name: str, kind: str, build: str, pattern: str, new: str, **facts: Any) -> Mutant:
    return Mutant(name, kind, build, (Text(pattern, new, file=CSV),), **facts)


def _plan(name: str, kind: str, build: str, change: Callable[[Any], Any], **facts: Any) -> Mutant:
    return Mutant(name, kind, build, (Json(lambda plan: change(plan["pipeline"])),), **facts)


def _patch(name: str, kind: str, build: str, target: str, make: Callable[[Any], Any], **facts: Any) -> Mutant:
    return Mutant(name, kind, build, (Patch(target, make),), **facts)


def _swap(words: list[str], i: int, j: int) -> None:
    words[i], words[j] = words[j], words[i]


def _deadlock(pipeline: Any) -> None:
    """The last stage runs back before it has run forward."""
    _swap(pipeline["order"]["1"], 0, 1)


PIPELINES = (
    # Where stages are
    _text("two stages on each other's rank", "stages", "tied pp2",
          (r"\(0, (lambda: TinyGPTFirst.*)\n(.*)\(1, ", r"(1, \1\n\2(0, "), spoils="ranks of the stages"),
    _text("a stage on the rank before", "stages", "passed pp2x2",
          (r"\(1, (lambda: DecoderMiddle)", r"(0, \1"), spoils="ranks of the stages"),
    _csv("rows of the schedule on each other's rank", "stages", "tied pp2",
         r"(.*)\n(.*)\n", r"\2\n\1\n", spoils="schedule|ranks of the stages"),
    _csv("a stage on another rank in the schedule alone", "stages", "passed pp2x2",
         r"1F0,1F1,(.*)", r"\1", spoils="schedule|ranks of the stages"),
    _plan("a stage on another rank in the plan alone", "stages", "passed pp2x2",
          lambda p: p["stages"][2].update(rank=1), spoils="ranks of the stages"),
    # What they hold
    _text("a layer that no stage has", "layers", "tied pp2", (r"First\(mesh, range\(0, 2\)", "First(mesh, range(0, 1)"),
          spoils=r"blocks\.1"),
    _text("a layer that two stages have", "layers", "tied pp2",
          (r"Last\(mesh, range\(2, 3\)", "Last(mesh, range(1, 3)"), spoils=r"blocks\.1"),
    _text("a layer too early and a layer too late", "layers", "passed pp2x2",
          (r"range\(1, 2\)", "range(2, 3)"), (r"(DecoderMiddle\(mesh, )range\(2, 3\)(.*\n.*\(1, lambda: DecoderLast)",
                                            r"\1range(1, 2)\2"), spoils=r"blocks\.[12]"),
    _text("the layers of a stage in the other order", "layers", "tied pp2",
          (r"for block in (self\.blocks\.values\(\))", r"for block in reversed(\1)", "class TinyGPTFirst"),
          spoils=r"blocks\.1"),
    _text("a layer that does not run", "layers", "tied pp2",
          (r"for block in (self\.blocks\.values\(\))", r"for block in list(\1)[1:]", "class TinyGPTFirst"),
          spoils=r"blocks\.[01]"),
    # What they send
    _text("sent while it is still to be summed", "message", "gpt pp2xtp2",
          (r"return x\n", "return pad_partial(slice_(x, self.tp, dim=1), self.tp, dim=1)\n", "class GPTFirst")),
    _text("sent whole for a part", "message", "llama pp2xtp2+sp",
          (r"return h\n", "return all_gather(h, self.tp, dim=1)\n", "class TransformerFirst"), spoils="stage 0 sends"),
    _text("sent as a part for the whole", "message", "gpt pp2xtp2",
          (r"return x\n", "return slice_(x, self.tp, dim=1)\n", "class GPTFirst"), spoils="stage 0 sends"),
    _text("sent in another shape", "message", "tied pp2",
          (r"return x\n", "return x.transpose(1, 2)\n", "class TinyGPTFirst"), spoils="stage 0 sends"),
    _text("sent in a narrow dtype", "message", "tied pp2",
          (r"return x\n", "return x.bfloat16()\n", "class TinyGPTFirst")),
    _text("sent without a gradient", "message", "tied pp2",
          (r"return x\n", "return x.detach()\n", "class TinyGPTFirst"), spoils="sends|gradient"),
    _text("a value that is not passed on", "message", "passed pp2x2",
          (r"return x, x_input\n", "return x, x\n", "class DecoderMiddle"), spoils="x_input"),
    _text("two values in the other order", "message", "passed pp2x2",
          (r"return x, x_input\n", "return x_input, x\n", "class DecoderMiddle"), spoils="x_input"),
    _text("two values taken for one another", "message", "passed pp2x2",
          (r"forward\(self, x: Tensor, x_input: Tensor", "forward(self, x_input: Tensor, x: Tensor",
           "class DecoderLast"),
          spoils="x_input"),
    _text("one value fewer", "message", "passed pp2x2", (r"return x, x_input\n", "return x\n", "class DecoderMiddle"),
          spoils="stage 1 sends"),
    _plan("another shape in the plan", "message", "tied pp2",
          lambda p: p["stages"][0]["sends"][0].update(shape=["batch", "seq", "64"]), spoils="stage 0 sends"),
    _plan("no gradient comes back, says the plan", "message", "tied pp2",
          lambda p: p["stages"][0]["sends"][0].update(grad=False), spoils="stage 0 sends|messages|gradient"),
    _patch("the gradient of what was sent does not come back", "message", "tied pp2",
           f"{SCHEDULED}._send_gradients", wrong_stages.no_gradient_sent, spoils="gradient"),
    _patch("the gradient does not reach the stage before on one rank", "message", "tied pp1x2",
           f"{STAGE}.set_local_bwd_input", wrong_stages.no_gradient_here, spoils="gradient"),
    # Whose microbatch
    _csv("two microbatches swapped in one stage", "microbatch", "tied pp2", r"0F0,0F1", "0F1,0F0", spoils="schedule"),
    _csv("two backwards swapped on one rank", "microbatch", "tied pp2", r"0B0,(.*)0B1", r"0B1,\g<1>0B0",
         spoils="schedule"),
    _patch("labels of the microbatch before", "microbatch", "tied pp2", f"{SCHEDULED}.step", wrong_stages.other_inputs,
           spoils="loss|gradient"),
    _patch("a microbatch is sent twice", "microbatch", "passed pp2x2", f"{SCHEDULED}._send_values",
           wrong_stages.other_value, spoils="loss|gradient"),
    _patch("sums that start after the first microbatch", "microbatch", "gpt pp2xdp2",
           "graphpar.verify.runs:GradientSums", wrong_stages.early_sums, spoils="gradient"),
    _patch("the mean of the microbatches' means", "microbatch", "tied pp2", f"{SCHEDULED}.step",
           wrong_stages.means_of_means, spoils="loss"),
    _text("the mean of the microbatches' means, in the text", "microbatch", "tied pp2",
          (r'reduction="sum"\) / count', 'reduction="mean") / 4')),
    _patch("labels counted in the last microbatch", "microbatch", "gpt pp2xdp2", "graphpar.verify.runs:count_labels",
           lambda right: lambda model, batches, plan, mesh: right(model, batches[-1:], plan, mesh), spoils="loss"),
    _patch("gradients divided by the microbatches", "microbatch", "passed pp2x2", f"{SCHEDULED}.step",
           wrong_stages.scaled_gradients, spoils="gradient"),
    _patch("every rank's own loss", "microbatch", "tied pp2", f"{PIPELINE}._everywhere", wrong_stages.own_loss,
           spoils="loss"),
    _patch("every microbatch drops the same", "microbatch", "gpt pp2xdp2", f"{RUNTIME}.mesh:Mesh.seed",
           wrong_stages.same_in_microbatches, spoils="masks"),
    _patch("every stage drops the same", "microbatch", "gpt pp2xdp2", f"{RUNTIME}.mesh:Mesh.seed",
           wrong_stages.same_in_stages, spoils="masks"),
    _patch("a forward that is run again drops otherwise", "microbatch", "gpt pp2+again",
           f"{RUNTIME}.random:Randomness.replay", lambda right: lambda self: (nullcontext(), nullcontext()),
           spoils="masks"),
    # What several stages hold
    _text("a tied gradient that is not summed", "tied", "tied pp2", (r" +shared=\{(?s:.*?)\n            \},\n", ""),
          spoils="emb.weight"),
    _text("a tied gradient that one rank keeps", "tied", "tied pp2", (r'"emb.weight": \(0, 1\)', '"emb.weight": (0,)'),
          spoils="emb.weight"),
    _patch("the sum of a tied gradient is left out", "tied", "tied pp2", f"{RUNTIME}.gradients:_shared",
           lambda right: lambda *args: [], spoils="emb.weight"),
    _patch("the mean of a tied gradient", "tied", "tied pp2", f"{RUNTIME}.gradients:_shared", wrong_stages.mean_of_tied,
           spoils="emb.weight"),
    _patch("a norm that counts what is tied on each rank", "tied", "tied pp2", f"{RUNTIME}.norms:_copies",
           lambda right: lambda *args, **kwargs: 1, spoils="norm"),
    # What runs when
    _csv("an action is left out", "schedule", "tied pp2", r",0B3", "", spoils="schedule"),
    _csv("an action runs twice", "schedule", "tied pp2", r",0F3", ",0F2", spoils="schedule"),
    _csv("a rank waits for itself", "schedule", "passed pp2x2", r"^0F0,(.*?)2I0", r"2I0,\g<1>0F0", spoils="schedule"),
    _csv("a backward before the forward behind it", "schedule", "tied pp2", r"1F0,1B0", "1B0,1F0",
         spoils="schedule"),
    _plan("an order that deadlocks, in the plan", "schedule", "tied pp2", _deadlock, spoils="schedule"),
    _plan("an order that leaves an action out, in the plan", "schedule", "tied pp2", lambda p: p["order"]["0"].pop(),
          spoils="schedule"),
    _plan("another number of microbatches", "schedule", "tied pp2", lambda p: p.update(microbatches=2),
          spoils="schedule"),
)  # fmt: skip
