"""TripleTraining: how triples are learnt by a model over their graph. Each option is one field here."""

import math
from dataclasses import dataclass

from siafu.base.option import check, option


@dataclass(frozen=True, kw_only=True)
class TripleTraining:
    """How to learn triples."""

    dim: int = option(
        50, "Width of the learnt vectors, and of the rows that the model makes of them.", least=1
    )
    fanout: str = option(
        "20", "In-edges of an entity that are drawn, from the last layer to the first, or all."
    )
    batch: int = option(1000, "Triples of a step.", least=1)
    negatives: int = option(1000, "Entities of a step that its heads and tails are compared with.", least=1)
    epochs: int = option(5, "How often to go over the training triples.", least=1)
    lr: float = option(
        0.1, "Learning rate of Adagrad.", valid=(lambda lr: 0 < lr < math.inf, "give a learning rate above 0")
    )
    evaluate_every: int = option(1, "Epochs from one evaluation to the next.", least=1)
    patience: int | None = option(
        None, "Stop after so many epochs that were no better on validation triples.", least=1
    )
    seed: int = option(0, "Seed of the first vectors and of the draws.", least=0)

    def __post_init__(self) -> None:
        check(self)
