"""SampleGraph: vertices of a sample and edges between them, of which every layer needs fewer."""

from dataclasses import dataclass

from torch import Tensor

from siafu.graph import Csr, Graph


@dataclass(frozen=True, slots=True, eq=False)
class GatheredRows:
    """Rows that a layer would gather, of the features as they are.

    layer: which one
    rows:  [N, F], of all vertices of a sample
    """

    layer: object
    rows: Tensor


@dataclass(frozen=True, eq=False, repr=False)
class SampleGraph(Graph):
    """A graph of a sample's vertices, hop by hop from those of a batch.

    first: the first layer's gather, which whoever made the sample has run; None: the layer runs it on the sample
    rows: how many vertices, from the first, have their edges here: whose rows a layer over it gives
    next: the same for the layer that follows, on these rows alone; None: it is the last, or all layers take this graph
    """

    first: "GatheredRows | None" = None
    rows: int = 0
    next: "SampleGraph | None" = None

    def first_rows(self, edges: Csr) -> Csr:
        """In-edges of the vertices that have them here; the others have none."""
        return edges._replace(indptr=edges.indptr[: self.rows + 1])

    def of(self, count: int) -> "SampleGraph":
        """The first graph, from this one on, over so many vertices."""
        found: SampleGraph | None = self
        while found is not None and found.num_vertices != count:
            found = found.next
        assert found is not None, f"no layer takes {count} rows"
        return found
