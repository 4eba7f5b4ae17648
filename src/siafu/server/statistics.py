"""LocalStatistics: one statistic over all vertices, as one graph server sees it: its intervals' sums, and everyone's."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from siafu.graph.partition import ByServer
from siafu.kernels import Table
from siafu.kernels.moments import Floats, column_moments, column_sums, moments_adjoint
from siafu.nn.tensors import as_rows
from siafu.program.program import ReduceStep
from siafu.server.edges import Exchange

_EPOCHS_KNOWN = 8  # asynchronous intervals of one server may be in several epochs at once


def interval_exchange(counts: Sequence[int], server: int) -> Exchange:
    """Every server gets what there is of every interval: one row of a table each; counts: intervals of each server."""
    starts = np.concatenate([[0], np.cumsum(counts)])
    own = np.arange(starts[server], starts[server + 1])
    others = [number for number in range(len(counts)) if number != server]
    ends = np.cumsum([0, *(len(own) if number in others else 0 for number in range(len(counts)))])
    return Exchange(
        ByServer(ends, np.tile(own, len(others))), ByServer(starts, np.arange(starts[-1])), by_interval=True
    )


class LocalStatistics:
    """Sums over rows, interval by interval; taken together, the mean (and variance) of all vertices' rows.

    Everything is added in float64, blocks in the order of an interval's rows and intervals in their own order: the result does
    not depend on who computes what when.

    forward_table:  [intervals of all servers, 1 + columns or 1 + 2 · columns] number of rows; sums, or means and squares
    backward_table: [intervals of all servers, columns or 2 · columns] gradients of what was made of them; None: there are none
    """

    def __init__(
        self, step: ReduceStep, counts: Sequence[int], server: int, dtype: torch.dtype, *, training: bool
    ) -> None:
        self.step, self._dtype = step, dtype
        self._first, total = sum(counts[:server]), sum(counts)
        self.exchange = interval_exchange(counts, server)
        self.forward_table: Table = np.zeros((total, 1 + self._kinds * step.width))
        goes_back = training and step.differentiated
        self.backward_table: Table | None = np.zeros((total, self._kinds * step.width)) if goes_back else None
        self.begin_anew()

    @property
    def _kinds(self) -> int:
        """A mean, or a mean and a variance."""
        return 2 if self.step.variance else 1

    @property
    def held_bytes(self) -> int:
        """Memory of its tables."""
        return self.forward_table.nbytes + (0 if self.backward_table is None else self.backward_table.nbytes)

    def begin_anew(self) -> None:
        """Forget what tasks have left for others."""
        self._begun: dict[int, tuple[int, Floats, Floats]] = {}
        self._totals: dict[int, Tensor] = {}
        self._gradients: dict[int, Tensor] = {}

    def add(self, interval: int, rows: Tensor) -> None:
        """Count some rows of an interval; they come in order, each once."""
        values = rows.detach().reshape(len(rows), self.step.width).numpy()
        count, first, second = self._begun.get(interval, (0, _NOTHING, _NOTHING))
        if not len(values):
            return
        if not self.step.variance:
            sums = column_sums(values)
            self._begun[interval] = count + len(values), first + sums if count else sums, _NOTHING
            return
        mean, squares = column_moments(values)
        if count:
            both = count + len(values)
            apart = mean - first
            squares = second + squares + apart * apart * (count * len(values) / both)
            mean = first + apart * (len(values) / both)
        self._begun[interval] = count + len(values), mean, squares

    def end(self, interval: int) -> None:
        """All rows of an interval are counted: others may read its sums."""
        count, first, second = self._begun.pop(interval, (0, _NOTHING, _NOTHING))
        row = self.forward_table[self._first + interval]
        row[:] = 0.0
        if count:
            width = self.step.width
            row[0], row[1 : 1 + width] = count, first
            row[1 + width :] = second

    def total(self, epoch: int) -> Tensor:
        """[1 or 2, *shape] the mean and the variance of all rows; worked out once an epoch."""
        return self._known(self._totals, epoch, self._total)

    def count(self) -> int:
        """Number of rows that the totals are of."""
        return int(self.forward_table[:, 0].sum())

    def put_gradient(self, interval: int, gradient: Tensor | None) -> None:
        """The part of an interval's rows in the gradient of the total; None: nothing."""
        assert self.backward_table is not None
        row = self.backward_table[self._first + interval]
        row[:] = 0.0 if gradient is None else gradient.detach().reshape(-1).numpy()

    def total_gradient(self, epoch: int) -> Tensor:
        """[1 or 2, *shape] the gradient of the total."""
        return self._known(self._gradients, epoch, self._total_gradient)

    def adjoint(
        self, rows: int, values: Tensor | None, total: Tensor, gradient: Tensor, besides: Tensor | None
    ) -> Tensor:
        """Gradients of some rows; values: the rows, for a variance; total: what was made of all; gradient: of it.

        besides: gradients of the rows that are known already, to which these are added
        """
        count = self.count()
        of_mean = gradient[0] / count
        if values is None:
            of_all = of_mean.expand(rows, *self.step.shape)
            return of_all if besides is None else besides + of_all
        given, others = self._columns(values), None if besides is None else self._columns(besides)
        means, factors = _numbers(total[0]), _numbers(gradient[1] * (2.0 / count))
        found = moments_adjoint(given, means, factors, _numbers(of_mean), others)
        return torch.from_numpy(found).reshape(rows, *self.step.shape)

    def _columns(self, rows: Tensor) -> NDArray[Any]:
        return as_rows(rows.reshape(len(rows), self.step.width))

    def _known(self, known: dict[int, Tensor], epoch: int, make: Callable[[], Floats]) -> Tensor:
        found = known.get(epoch)
        if found is None:
            # Two tasks may come here at once: both make the same.
            found = torch.from_numpy(make()).to(self._dtype).reshape(self._kinds, *self.step.shape)
            known[epoch] = found
            for old in list(known):
                if old <= epoch - _EPOCHS_KNOWN:
                    known.pop(old, None)
        return found

    def _total(self) -> NDArray[np.float64]:
        width = self.step.width
        table = self.forward_table.astype(np.float64)  # a copy: others may write while this is read (async)
        counts, first = table[:, :1], table[:, 1 : 1 + width]
        count = counts.sum()
        if not self.step.variance:
            return np.asarray(first.sum(axis=0) / count)
        mean = (counts * first).sum(axis=0) / count
        apart = first - mean
        squares = table[:, 1 + width :].sum(axis=0) + (counts * apart * apart).sum(axis=0)
        return np.stack([mean, squares / count])

    def _total_gradient(self) -> NDArray[np.float64]:
        assert self.backward_table is not None
        return np.asarray(self.backward_table.sum(axis=0))


def _numbers(columns: Tensor) -> NDArray[Any]:
    found: NDArray[Any] = columns.detach().reshape(-1).numpy()
    return found


_NOTHING = np.zeros(0)
