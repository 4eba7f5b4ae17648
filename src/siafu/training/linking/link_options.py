"""LinkOptions: how links are learnt. Each option is one field here."""

import math
from dataclasses import dataclass

from siafu.base.option import check, option


@dataclass(frozen=True, kw_only=True)
class LinkOptions:
    """How to learn links."""

    decoder: str = option(
        "dot",
        "Score of a pair: dot, mlp or distmult.",
        choices=("dot", "mlp", "distmult"),
        noun="decoder",
    )
    epochs: int = option(200, "How often to go over the training links.", least=1)
    lr: float = option(
        0.01, "Learning rate.", valid=(lambda lr: 0 < lr < math.inf, "give a learning rate above 0")
    )
    weight_decay: float = option(
        0.0,
        "L2 penalty on the weights.",
        valid=(lambda decay: 0 <= decay < math.inf, "give a number from 0 up"),
    )
    row_optimizer: str | None = option(
        None,
        "Optimizer of learnt rows of vertices, of which only those with a gradient move: sparse_adam or adagrad.",
        more="As PyTorch's with sparse gradients: without weight decay.",
        unset="sparse_adam for nn.Embedding(…, sparse=True); else Adam",
        choices=("sparse_adam", "adagrad"),
        noun="row_optimizer",
    )
    batch: int | None = option(
        None,
        "Training links of a step.",
        more="Every step is over the whole graph.",
        unset="all: one step an epoch",
        least=1,
    )
    hide: bool = option(
        False,
        "Leave the links of a step's batch out of the graph that it gathers over.",
        more="So that no link is predicted from itself. Needs `batch`.",
    )
    metric: str = option(
        "hits_at_100",
        "What epochs are compared by: auc, mrr, hits_at_10, hits_at_20, hits_at_50 or hits_at_100.",
        choices=("auc", "mrr", "hits_at_10", "hits_at_20", "hits_at_50", "hits_at_100"),
        noun="metric",
    )
    evaluate_every: int = option(1, "Epochs from one evaluation to the next.", least=1)
    patience: int | None = option(
        None, "Stop after so many epochs that were no better.", more="Counted from the best epoch.", least=1
    )
    val: float = option(0.05, "Share of the links that are for validation.")
    test: float = option(0.1, "Share of the links that are for the test.")
    seed: int = option(0, "Seed of the split, of negatives and of dropout.", least=0)

    def __post_init__(self) -> None:
        check(self)
