"""Letters between the driver and the servers of mini-batches, and among servers. Arrays go beside them."""

import sys
from dataclasses import dataclass

from siafu.cluster.post.letters import admit_events
from siafu.pipeline.events import Event


@dataclass(frozen=True, slots=True)
class BatchPlace:
    """A batch of a run.

    round: counts up when a server is lost: batches that were under way are begun again, and letters of earlier rounds are void
    """

    round: int
    epoch: int
    number: int


@dataclass(frozen=True, slots=True)
class BatchEvent(Event):
    """A letter about a batch."""

    batch: BatchPlace


@dataclass(frozen=True, slots=True)
class PrepareBatch(BatchEvent):
    """Driver → the server that draws it: draw a batch, and give every server its share."""


@dataclass(frozen=True, slots=True)
class ShareDrawn(BatchEvent):
    """Server → server, with a share of a sample.

    sizes:    of the share's sample
    vertices, edges: number of those of the whole sample
    """

    sizes: tuple[int, ...]
    vertices: int
    edges: int


@dataclass(frozen=True, slots=True)
class RowsWanted(BatchEvent):
    """Server → server, with ids of vertices that the other owns: their features are wanted."""


@dataclass(frozen=True, slots=True)
class RowsSent(BatchEvent):
    """The answer to RowsWanted, with the features, in the order of the ids."""


@dataclass(frozen=True, slots=True)
class ComputeShare(BatchEvent):
    """Driver → server, with the weights: compute the share as soon as it is ready."""


@dataclass(frozen=True, slots=True)
class ShareComputed(BatchEvent):
    """Server → driver, with the gradients.

    loss_sum, loss_terms: of the share, as `BatchResult`
    vertices, edges:      number of those of the whole sample
    structure, features:  bytes that the server received for the batch, and of the ids that it sent, as `Moved`
    """

    loss_sum: float
    loss_terms: float
    vertices: int
    edges: int
    structure: int
    features: int


admit_events(sys.modules[__name__])
