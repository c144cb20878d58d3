"""All mutants, and the kinds of mistakes that must be among them."""

from tools.mutants.balance import BALANCE
from tools.mutants.expert_runtimes import EXPERT_RUNTIMES
from tools.mutants.experts import EXPERTS
from tools.mutants.mutant import Mutant
from tools.mutants.pipelines import PIPELINES
from tools.mutants.plans import PLANS
from tools.mutants.runtimes import RUNTIMES
from tools.mutants.states import STATES
from tools.mutants.texts import MOVES

KINDS = {
    "drop": "a collective does not run, or not everywhere",
    "double": "a collective runs twice, or for nothing",
    "reorder": "collectives, or what they bring, come in another order",
    "mean": "a mean for a sum, or a sum for a mean",
    "other collective": "a gather for a sum, or a sum for a gather",
    "axis": "a collective runs over the wrong axis of the mesh",
    "dimension": "a tensor is joined, cut or read along the wrong dimension",
    "backward": "a collective of the backward pass is missing, doubled or wrong",
    "identical": "what is cut, or a summand, is taken as the same on every rank",
    "grad sum": "the gradient of a parameter is not summed, or once too often",
    "bias": "a bias is added before a sum, or on some ranks",
    "loss": "the loss is divided by something else than the labels of all ranks",
    "clip": "the norm that gradients are clipped by is not that of the whole model",
    "scale": "a factor is off, on one rank or on all",
    "exponent": "an exponent is off, on one rank or on all",
    "rotary": "rotary positions turn by other angles, or another half",
    "dropout": "masks are equal on parts, different on replicas, or drop something else",
    "reducer": "sums of gradients start too early, or miss some",
    "loading": "a rank gets another part than its own",
    "padding": "padding of the vocabulary, or another rank's rows, take part",
    "mask": "a token sees what it must not, or is not where it is",
    "stale": "a parameter is not updated, or not everywhere",
    "optimizer": "a step is another one",
    "stages": "a stage of a pipeline is on another rank",
    "layers": "a stage of a pipeline has other layers than its own",
    "message": "a stage sends something else, or in another state, or gets no gradient back",
    "microbatch": "a microbatch is taken for another, or counts more than another",
    "tied": "what several stages hold gets several gradients",
    "schedule": "ranks of a pipeline do something else than the plan says, or wait for ever",
    "rows": "rows meet another expert, or come back to another token",
    "router": "the router learns nothing, or something else, from what its choices bring",
    "balance": "the loss that balances experts is another one, or that of each rank alone",
    "no rows": "a rank, or an expert, to which no row comes is forgotten",
    "plan": "plan.json says something else than the text",
    "wrong text": "the program is no program, or computes something else everywhere",
}

MUTANTS: tuple[Mutant, ...] = (*MOVES, *STATES, *RUNTIMES, *PLANS, *PIPELINES, *EXPERTS, *BALANCE, *EXPERT_RUNTIMES)
