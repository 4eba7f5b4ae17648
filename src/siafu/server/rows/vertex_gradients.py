"""VertexGradients: gradients of weights that have a row for each vertex, for the vertices of one interval."""

from collections.abc import Mapping

from torch import Tensor

from siafu.server.rows.blocks import Block


class VertexGradients:
    """Takes such gradients out of those that blocks of rows give, each with the rows of its own vertices.

    found: [vertices of the interval, …] by name; vertices that no block has computed have zeros
    """

    def __init__(self, of_vertices: frozenset[str], count: int) -> None:
        self._of_vertices, self._count = of_vertices, count
        self.found: dict[str, Tensor] = {}

    def taken_out(
        self, block: Block, gradients: Mapping[str, Tensor], *, labelled: bool = False
    ) -> Mapping[str, Tensor]:
        """The other gradients; labelled: rows are those that the last phase computes of the block"""
        if not self._of_vertices:
            return gradients
        for name in self._of_vertices & gradients.keys():
            self._put(name, block, gradients[name], block.labelled if labelled else None)
        return {name: each for name, each in gradients.items() if name not in self._of_vertices}

    def _put(self, name: str, block: Block, rows: Tensor, places: Tensor | None) -> None:
        if name not in self.found:
            self.found[name] = rows.new_zeros((self._count, *rows.shape[1:]))
        inside = self.found[name][block.inside]
        if places is None:
            inside.copy_(rows)
        else:
            inside.index_copy_(0, places, rows)
