"""FeatureBuffer: groups of partitions of the features in memory, read before batches need them; other rows come from the mapped file."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.jit import kernel
from siafu.base.storage.mapped import read_soon
from siafu.sampling.disk.feature_order import GROUPS_HELD, EpochOrder, FeatureOrder

GroupKey = tuple[int, int]
"""An epoch, and a group of it."""


class FeatureBuffer:
    """Rows for the batches of some epochs. Any number of threads may ask, for each batch once, if batches are begun in their order.

    Three groups are held: two for the batches that are loaded, and the next one, which a thread reads meanwhile. A group is let go when
    all batches of its states have their rows.

    stored:   [V, F] the features, as they are stored
    order_of: the order of an epoch
    """

    def __init__(
        self,
        stored: NDArray[Any],
        order: FeatureOrder,
        order_of: Callable[[int], EpochOrder],
        epochs: range,
    ) -> None:
        self._stored, self._order, self._epochs = stored, order, epochs
        self._order_of = lru_cache(3)(order_of)
        self._row = int(stored.shape[1]) * stored.itemsize
        self._lock = threading.Lock()
        self._groups: dict[GroupKey, Future[NDArray[Any]]] = {}
        self._left: dict[GroupKey, int] = {}
        self._room = threading.Semaphore(GROUPS_HELD)
        self._closed = False
        threading.Thread(target=self._read_all, name="siafu-features", daemon=True).start()

    def rows(self, epoch: int, number: int, vertices: NDArray[np.int64]) -> tuple[NDArray[Any], int]:
        """Features of some vertices for a batch; and the bytes that were read for it: groups that it is the first to need, and other rows."""
        order = self._order_of(epoch)
        state = int(order.states[number])
        keys = (epoch, state), (epoch, state + 1)
        held = [self._group(key).result() for key in keys]
        out = np.empty((len(vertices), self._stored.shape[1]), self._stored.dtype)
        which, places = self._places(order, state)
        outside = _copy_rows(
            vertices, self._order.partition_rows, which, places, held[0], held[1], self._stored, out
        )
        del held
        self._let_go(keys)
        first = order.first_users()
        new = [order.groups[group] for group in (state, state + 1) if first[group] == number]
        return out, (sum(map(self._order.group_rows, new)) + int(outside)) * self._row

    def close(self) -> None:
        """End the thread that reads."""
        with self._lock:
            self._closed = True
            waiting = [each for each in self._groups.values() if not each.done()]
        self._room.release()
        for each in waiting:
            each.cancel()

    def _places(self, order: EpochOrder, state: int) -> tuple[NDArray[np.int8], NDArray[np.int64]]:
        """For each partition, which of the state's groups has it (-1: none), and its first row there."""
        which = np.full(self._order.partitions, -1, np.int8)
        places = np.zeros(self._order.partitions, np.int64)
        for number in (0, 1):
            at = 0
            for partition in order.groups[state + number].tolist():
                rows = self._order.rows_of(partition)
                which[partition], places[partition] = number, at
                at += rows.stop - rows.start
        return which, places

    def _group(self, key: GroupKey) -> "Future[NDArray[Any]]":
        with self._lock:
            return self._groups.setdefault(key, Future())

    def _let_go(self, keys: tuple[GroupKey, ...]) -> None:
        """A batch has its rows."""
        for key in keys:
            with self._lock:
                self._left[key] -= 1
                over = not self._left[key]
                if over:
                    del self._groups[key], self._left[key]
            if over:
                self._room.release()

    def _wanted(self) -> Iterator[tuple[GroupKey, NDArray[np.int64], int]]:
        """Groups in the order in which they are read, with the number of their batches."""
        for epoch in self._epochs:
            order = self._order_of(epoch)
            for number, users in enumerate(order.users().tolist()):
                if users:
                    yield (epoch, number), order.groups[number], users

    def _read_all(self) -> None:
        """The thread that reads."""
        for key, group, users in self._wanted():
            self._room.acquire()
            if self._closed:
                return
            found = self._group(key)
            with self._lock:
                self._left[key] = users
            if not found.set_running_or_notify_cancel():
                return
            try:
                found.set_result(self._read(group))
            except BaseException as error:  # for those that wait
                found.set_exception(error)
                return

    def _read(self, group: NDArray[np.int64]) -> NDArray[Any]:
        every = [self._order.rows_of(partition) for partition in group.tolist()]
        for rows in every:
            read_soon(self._stored[rows])
        return np.concatenate([self._stored[rows] for rows in every])


@kernel
def _copy_rows(
    vertices: Any,
    partition_rows: int,
    which: Any,
    places: Any,
    first: Any,
    second: Any,
    stored: Any,
    out: Any,
) -> int:
    """out[i] = the features of vertices[i], from a group or from the file; how many were from the file."""
    outside = 0
    for i in range(len(vertices)):
        v = vertices[i]
        partition = v // partition_rows
        row = places[partition] + v - partition * partition_rows
        if which[partition] == 0:
            out[i, :] = first[row]
        elif which[partition] == 1:
            out[i, :] = second[row]
        else:
            out[i, :] = stored[v]
            outside += 1
    return outside
