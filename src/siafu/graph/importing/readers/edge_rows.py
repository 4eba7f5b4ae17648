"""Features and types of edges in arrays or files of their own, a row for each edge, beside the edges."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.errors import BadInput
from siafu.graph.importing.readers.blocks import EdgeBlock, EdgeSource, Rows
from siafu.graph.importing.readers.edges import as_weights

_BLOCK_BYTES = 8 << 20


@dataclass(frozen=True)
class EdgesWithRows:
    """Edges of one source, with rows that are read beside them, in the edges' order.

    attr:  features of edges, each a row of numbers or one number; None: none
    types: one whole number for each edge; None: none
    """

    edges: EdgeSource
    attr: Rows | None = None
    types: Rows | None = None

    def __post_init__(self) -> None:
        if self.attr is not None and (len(self.attr.shape) > 1 or 0 in self.attr.shape):
            raise BadInput(
                f"{self.attr.what}: each edge has values of shape {self.attr.shape}; give a row of numbers"
            )
        if self.types is not None and self.types.shape not in ((), (1,)):
            raise BadInput(
                f"{self.types.what}: each edge has values of shape {self.types.shape}; give one type"
            )

    @property
    def num_vertices(self) -> int | None:
        return self.edges.num_vertices

    @property
    def named(self) -> bool:
        return self.edges.named

    @property
    def weighted(self) -> bool:
        return self.edges.weighted

    @property
    def attr_width(self) -> int:
        return self.edges.attr_width if self.attr is None else (*self.attr.shape, 1)[0]

    @property
    def typed(self) -> bool:
        return self.edges.typed or self.types is not None

    def blocks(self, id_stop: int | None) -> Iterator[EdgeBlock]:
        attr = None if self.attr is None else _RowCursor(self.attr)
        types = None if self.types is None else _RowCursor(self.types)
        for block in self.edges.blocks(id_stop):
            count = block.src.size
            if attr is not None:
                rows = attr.take(count).reshape(count, -1)
                block = block._replace(attr=as_weights(rows, attr.rows.what, attr.done - count, "feature"))
            if types is not None:
                block = block._replace(types=types.take(count).reshape(-1))
            yield block
        for cursor in (attr, types):
            if cursor is not None:
                cursor.check_end()


class _RowCursor:
    """Rows in order, as many at a time as are asked for."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.done = 0
        self._blocks = rows.blocks(_BLOCK_BYTES)
        self._left: list[NDArray[Any]] = []

    def take(self, count: int) -> NDArray[Any]:
        have = sum(map(len, self._left))
        while have < count:
            block = next(self._blocks, None)
            if block is None:
                raise BadInput(
                    f"{self.rows.what}: there are {self.done + have:,} rows, and more edges: give one for each edge"
                )
            if block.dtype.kind not in "biuf":
                raise BadInput(f"{self.rows.what} hold {block.dtype}: give numbers")
            self._left.append(block)
            have += len(block)
        whole = np.concatenate(self._left) if len(self._left) != 1 else self._left[0]
        self._left = [whole[count:]] if count < len(whole) else []
        self.done += count
        return whole[:count]

    def check_end(self) -> None:
        more = sum(map(len, self._left)) or len(next(self._blocks, ()))
        if more:
            raise BadInput(
                f"{self.rows.what}: there are more rows than the {self.done:,} edges: give one for each"
            )


def with_rows(edges: EdgeSource, attr: Rows | None, types: Rows | None) -> EdgeSource:
    """The edges with these rows beside them; the same where there are none."""
    for rows, there in ((attr, edges.attr_width > 0), (types, edges.typed)):
        if rows is not None and there:
            raise BadInput(f"{rows.what}: the edges' own table has some, too; leave one of them out")
    return edges if attr is None and types is None else EdgesWithRows(edges, attr, types)
