"""TableLoad: a batch made of its sample and of a table of the features that it reads."""

from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from siafu.sampling.sample import Sample
from siafu.sampling.sampled_model import SampledBatch

if TYPE_CHECKING:
    from siafu.sampling.sampled_plan import SampledPlan


class TableLoad:
    """Makes batches."""

    def __init__(self, parts: "SampledPlan") -> None:
        self._graphs, self._features, self._y = parts.graphs(), parts.plan.features, parts.y
        self._first = parts.first_gather() if parts.first_input == "gathered" else None

    def of(
        self,
        sample: Sample,
        table: NDArray[Any],
        rows: NDArray[Any] | None,
        epoch: int,
        number: int,
        read_bytes: int = 0,
    ) -> SampledBatch:
        """The batch.

        table: [R, F] features as they are stored, of the sample's vertices and then of its leaves
        rows:  [E] the place in the table of each drawn edge's source; None: the sample has no leaves
        read_bytes: that were read from disk
        """
        first = None if self._first is None else self._first.of(sample, table, rows)
        own = table[: len(sample.vertices)]
        x = self._features.computed(own if rows is None else own.copy())  # leaves are not held
        graph = self._graphs.of(sample, x, first)
        y = self._y[sample.vertices[: sample.sizes[0]]]
        return SampledBatch(
            epoch, number, sample.vertices, sample.sizes[0], graph, x, y, sample.num_edges, read_bytes
        )
