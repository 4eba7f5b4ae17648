"""StreamedRows: constant rows that nobody holds: they are read a block at a time, from a table on disk or from the graph's features."""

from abc import ABC, abstractmethod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from siafu.server.rows.feature_rows import FeatureRows
from siafu.tables import RowStream


class StreamedRows(ABC):
    """Constant rows, as a lane reads them.

    nbytes: memory that they take for good
    """

    nbytes = 0

    @abstractmethod
    def block(self, first: int, last: int) -> Tensor:
        """The rows first:last, in the type in which they are stored."""

    @abstractmethod
    def element_size(self) -> int:
        """Bytes of a number, as it is stored."""


class StreamedFeatures(StreamedRows):
    """Features that are not computed with as they are stored, or of some vertices: each block is made where it is used.

    own: ids of the vertices, ascending; None: all
    """

    def __init__(
        self, features: FeatureRows, dtype: torch.dtype, own: NDArray[np.int64] | None = None
    ) -> None:
        self._features, self._dtype, self._own = features, dtype, own

    def block(self, first: int, last: int) -> Tensor:
        if self._own is not None:
            return self._features.of(self._own[first:last]).to(self._dtype)
        return self._features.block(first, last).to(self._dtype)

    def element_size(self) -> int:
        return self._dtype.itemsize


class RowsOnDisk(StreamedRows):
    """Rows of a table on disk.

    shape: of one row
    dtype: in which they are stored: what is computed in, or bfloat16
    gaps:  whether they lie as in a table, with spare columns; in memory gathered rows do, and products shall have the same bits
    """

    def __init__(self, stream: RowStream, shape: tuple[int, ...], dtype: torch.dtype, *, gaps: bool) -> None:
        self._stream, self._shape, self._dtype, self._gaps = stream, shape, dtype, gaps

    def block(self, first: int, last: int) -> Tensor:
        rows = torch.from_numpy(self._stream.read(first, last))[:, : self._stream.table.columns]
        if self._dtype == torch.bfloat16:
            rows = rows.view(torch.bfloat16)
        found = rows if self._gaps else rows.contiguous()
        return found.reshape(last - first, *self._shape)

    def element_size(self) -> int:
        return self._dtype.itemsize
