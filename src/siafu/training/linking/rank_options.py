"""RankOptions: how ranks are learnt. Each option is one field here."""

import math
from dataclasses import dataclass

from siafu.base.option import check, option


@dataclass(frozen=True, kw_only=True)
class RankOptions:
    """How to learn ranks."""

    channels: int = option(64, "Width of the rows of users and items (LightGCN).", least=1)
    layers: int = option(3, "How often rows go along the edges (LightGCN).", least=0)
    epochs: int = option(100, "How often to draw as many pairs as there are to train on.", least=1)
    lr: float = option(
        0.001, "Learning rate of Adam.", valid=(lambda lr: 0 < lr < math.inf, "give a learning rate above 0")
    )
    row_optimizer: str | None = option(
        None,
        "Optimizer of learnt rows of vertices, of which only those with a gradient move: sparse_adam or adagrad.",
        more="As PyTorch's with sparse gradients: without weight decay.",
        unset="sparse_adam for nn.Embedding(…, sparse=True); else Adam",
        choices=("sparse_adam", "adagrad"),
        noun="row_optimizer",
    )
    penalty: float = option(
        1e-4,
        "L2 penalty on the learnt rows of a step's users and items.",
        valid=(lambda penalty: 0 <= penalty < math.inf, "give a number from 0 up"),
    )
    batch: int = option(2048, "Pairs of a step; every step is over the whole graph.", least=1)
    sampling: str = option(
        "pairs",
        "pairs: every training pair once an epoch; users: each time a user at random and one of their items.",
        more="The latter is what LightGCN's own code does.",
        choices=("pairs", "users"),
        noun="sampling",
    )
    k: int = option(20, "How many of the best items count: recall@k and ndcg@k.", least=1)
    evaluate_every: int = option(1, "Epochs from one evaluation to the next.", least=1)
    patience: int | None = option(
        None, "Stop after so many epochs that were no better on validation pairs.", least=1
    )
    seed: int = option(0, "Seed of the first rows and of the draws.", least=0)

    def __post_init__(self) -> None:
        check(self)
