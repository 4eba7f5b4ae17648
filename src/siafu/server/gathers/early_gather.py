"""EarlyGather: one direction of a gather that is begun with the rows that are there, bucket by bucket."""

from abc import ABC, abstractmethod
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from siafu.kernels import (
    AdjointState,
    Attention,
    HubEdges,
    HubSum,
    Table,
    add_bucket,
    attend_adjoint_bucket,
    finish_sums,
    first_edges,
    maximise_bucket,
    row_list,
    share_out_bucket,
    start_maxima,
    start_sums,
)
from siafu.server.edges import Walk

Ids = NDArray[np.int64]
S = TypeVar("S")


class EarlyGather(ABC, Generic[S]):
    """A gather of ranges of own rows, each of which may be begun before all of its sources are there.

    Sources are added in ascending order, as one walk would add them, so the bits are those of one walk. Rows of a
    range may be touched by one thread at a time; its result must stay where it is until it is ended.

    walk:   the edges
    needed: own rows that are gathered for, ascending; None: all
    """

    def __init__(self, walk: Walk, needed: Ids | None = None) -> None:
        self._walk, self._needed = walk, needed
        self._begun: dict[int, S] = {}

    def add(self, first: int, last: int, until: int, *, dropout: float = 0.0, seed: int = 0) -> None:
        """Add what is not added yet of the sources before `until` to the rows from `first` up to `last`."""
        if first not in self._begun:
            self._begun[first] = self._start(first, last, dropout, seed)
        self._add(self._begun[first], first, last, until, dropout, seed)

    def end(self, first: int, last: int, *, dropout: float = 0.0, seed: int = 0) -> bool:
        """Add the rest to rows that were begun; whether they were."""
        state = self._begun.pop(first, None)
        if state is None:
            return False
        self._add(state, first, last, self._walk.columns, dropout, seed)
        self._finish(state, first, last)
        return True

    def forget(self) -> None:
        """Nothing is begun any more."""
        self._begun.clear()

    @abstractmethod
    def _start(self, first: int, last: int, dropout: float, seed: int) -> S:
        """Put into the result what stands before all sources; where the gather of these rows stands then."""

    @abstractmethod
    def _add(self, state: S, first: int, last: int, until: int, dropout: float, seed: int) -> None: ...

    def _finish(self, state: S, first: int, last: int) -> None:
        """All sources are added."""

    def _first_edges(self, first: int, last: int) -> Ids:
        """The next edge of each row, before any is added."""
        needed = self._needed
        if needed is not None:
            needed = needed[slice(*np.searchsorted(needed, (first, last)))] - first
        return first_edges(self._walk.edges.indptr[first : last + 1], needed)


class SumFactors(NamedTuple):
    """Factors of a sum's own rows: of their self-loops, and of their results; None: there are none."""

    self_weight: NDArray[Any] | None
    scale: NDArray[Any] | None


class BegunSums(NamedTuple):
    """Where the sums of a range stand: the next edge of each row, and the range's hubs."""

    at: Ids
    hubs: list[HubSum]


class EarlySum(EarlyGather[BegunSums]):
    """A sum. weights: of the edges; None: every edge weighs 1. hubs: rows that are summed apart."""

    def __init__(
        self,
        walk: Walk,
        rows: Table,
        out: Table,
        factors: SumFactors,
        weights: NDArray[Any] | None,
        hubs: HubEdges,
        needed: Ids | None = None,
    ) -> None:
        super().__init__(walk, needed)
        self._rows, self._out, self._factors, self._weights, self._hubs = rows, out, factors, weights, hubs

    def _start(self, first: int, last: int, dropout: float, seed: int) -> BegunSums:
        own = self._factors.self_weight
        start_sums(
            self._rows[first:last],
            None if own is None else own[first:last],
            self._out[first:last],
            0,
            last - first,
        )
        at = self._first_edges(first, last)
        apart = [hub for hub in self._hubs.hubs if first <= hub.row < last]
        for hub in apart:
            at[hub.row - first] = self._walk.edges.indptr[hub.row + 1]
        edges = self._hubs.indices, self._hubs.weights
        return BegunSums(at, [HubSum(hub, *edges, self._out, hub.row) for hub in apart])

    def _add(self, state: BegunSums, first: int, last: int, until: int, dropout: float, seed: int) -> None:
        indptr, indices, _ = self._walk.edges
        own = -1 if self._factors.self_weight is None else first
        add_bucket(
            indptr[first : last + 1],
            indices,
            self._weights,
            self._rows,
            0,
            until,
            own,
            state.at,
            self._out[first:last],
            0,
            last - first,
        )
        for hub in state.hubs:
            hub.add(self._rows, 0, until)

    def _finish(self, state: BegunSums, first: int, last: int) -> None:
        for hub in state.hubs:
            hub.end()
        scale = self._factors.scale
        finish_sums(None if scale is None else scale[first:last], self._out[first:last], 0, last - first)


class EarlyMax(EarlyGather[Ids]):
    """Maxima, and how many rows reach them."""

    def __init__(self, walk: Walk, rows: Table, out: Table, ties: Table, needed: Ids | None) -> None:
        super().__init__(walk, needed)
        self._rows, self._out, self._ties = rows, out, ties

    def _start(self, first: int, last: int, dropout: float, seed: int) -> Ids:
        indptr = self._walk.edges.indptr[first : last + 1]
        start_maxima(indptr, self._out[first:last], self._ties[first:last], 0, last - first)
        return self._first_edges(first, last)

    def _add(self, state: Ids, first: int, last: int, until: int, dropout: float, seed: int) -> None:
        indptr, indices, _ = self._walk.edges
        out, ties = self._out[first:last], self._ties[first:last]
        maximise_bucket(
            indptr[first : last + 1], indices, self._rows, 0, until, state, out, ties, 0, last - first
        )


class EarlyMaxAdjoint(EarlyGather[Ids]):
    """Shares of the rows that reach a maximum. rows: what the forward gather read."""

    def __init__(self, walk: Walk, rows: Table, maxima: Table, shares: Table, out: Table) -> None:
        super().__init__(walk)
        self._rows, self._maxima, self._shares, self._out = rows, maxima, shares, out

    def _start(self, first: int, last: int, dropout: float, seed: int) -> Ids:
        self._out[first:last] = 0
        return self._first_edges(first, last)

    def _add(self, state: Ids, first: int, last: int, until: int, dropout: float, seed: int) -> None:
        indptr, indices, _ = self._walk.edges
        share_out_bucket(
            indptr[first : last + 1],
            indices,
            self._rows[first:last],
            self._maxima,
            self._shares,
            0,
            until,
            state,
            self._out[first:last],
            0,
            last - first,
        )


class EarlyAttentionAdjoint(EarlyGather[AdjointState]):
    """The adjoint of attention; the arrays are those of `attend_adjoint_range`.

    Forth, attention is not begun early: how its sums are rounded depends on the greatest logit of 64 edges.
    """

    def __init__(
        self,
        walk: Walk,
        rows: Table,
        source: NDArray[Any],
        targets: NDArray[Any],
        gradient: Table,
        how: Attention,
        out: Table,
        of_source: NDArray[Any],
    ) -> None:
        super().__init__(walk)
        self._rows, self._source, self._targets, self._gradient = rows, source, targets, gradient
        self._how, self._out, self._of_source = how, out, of_source

    def _start(self, first: int, last: int, dropout: float, seed: int) -> AdjointState:
        state = AdjointState.first(
            self._walk.edges.indptr[first : last + 1], self._how.heads, self._of_source.dtype
        )
        self._out[first:last] = 0
        self._of_source[first:last] = 0
        self._add_bucket(state, first, last, first, last, dropout, seed, own_first=True)
        return state

    def _add(self, state: AdjointState, first: int, last: int, until: int, dropout: float, seed: int) -> None:
        self._add_bucket(state, first, last, 0, until, dropout, seed, own_first=False)

    def _add_bucket(
        self,
        state: AdjointState,
        first: int,
        last: int,
        low: int,
        high: int,
        dropout: float,
        seed: int,
        *,
        own_first: bool,
    ) -> None:
        indptr, indices, _ = self._walk.edges
        attend_adjoint_bucket(
            indptr[first : last + 1],
            indices,
            self._gradient[low:high],
            self._targets[low:high],
            low,
            high,
            first,
            own_first,
            self._rows[first:last],
            self._source[first:last],
            *self._how._replace(dropout=dropout, seed=seed).arguments,
            row_list(self._walk.drawn),
            *state,
            self._out[first:last],
            self._of_source[first:last],
            0,
            last - first,
        )
