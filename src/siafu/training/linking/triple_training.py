"""TripleTraining: how triples are learnt by a model over their graph. Each option is one field here."""

import math
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir

from siafu.base.errors import BadInput
from siafu.base.option import check, option, same_option
from siafu.embedding.embed_options import EmbedOptions
from siafu.options import Session


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

    partitions: int | None = option(
        None, "Parts of the entities' vectors on disk.", unset="all in memory", least=1, most=256
    )
    buffer: int | None = option(
        None, "Partitions in memory at a time.", unset="a quarter of them, two at least", least=1
    )
    order: str = same_option(EmbedOptions, "order")
    scratch: str | Path | None = option(
        None, "Directory for partitions on disk.", unset="the system's for temporary files"
    )
    memory: str | None = same_option(Session, "memory")

    def __post_init__(self) -> None:
        check(self)
        if self.partitions is None:
            for name in ("buffer", "scratch"):
                if getattr(self, name) is not None:
                    raise BadInput(
                        f"{name} is for vectors in partitions, and there are none: give partitions, too"
                    )
            return
        if self.buffer is None:
            object.__setattr__(self, "buffer", min(self.partitions, max(2, self.partitions // 4)))
        assert self.buffer is not None
        if self.buffer > self.partitions:
            raise BadInput(
                f"buffer is {self.buffer}, and there are {self.partitions} partitions: give at most that"
            )
        if self.buffer == 1 and self.partitions > 1:
            raise BadInput("buffer is 1, and a triple is of two partitions: give 2 at least")

    @property
    def scratch_directory(self) -> str | Path:
        return self.scratch or gettempdir()
