"""Relabeller: names and scattered numbers become ids from 0 up, in bounded memory.

Every name has a 64-bit key that looks random: a hash of a string, a bijective mix of an integer. Keys bucket
evenly by their highest bits, so each step goes bucket by bucket:
1. The mentions of each key are made one.
2. Those are sorted by what decides the order of ids, and numbered: the table from key to id.
3. Edges are joined with the table by their source's key, then by their destination's.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from siafu.base.errors import BadInput
from siafu.base.hashing import GOLDEN, mix
from siafu.base.jit import kernel
from siafu.graph.csr import EdgeWeights, IntArray
from siafu.graph.importing.readers.blocks import Ids, Names
from siafu.graph.progress import ProgressCallback, silent
from siafu.graph.sorting.scratch import Scratch
from siafu.graph.sorting.spill import Columns, Leaf, Spill, leaves, sort_records
from siafu.graph.stores.store import ArrayWriter

_SEEN = 1 << 19  # keys remembered while reading, so that repeated mentions are dropped early
_KEY_BITS = 64
_BUCKET_BITS = 10
LONGEST_NAME = 1024
_NAMES_WINDOW = 32 << 20

VertexKeys = NDArray[np.uint64]


class HashCollision(Exception):
    """Two strings have the same key: start again with another seed."""


class ArrayStarter(Protocol):
    """A store that is being written."""

    def array(self, name: str, dtype: DTypeLike) -> ArrayWriter: ...


class Relabeller:
    """Takes edges, and vertices of a table, by name; numbers the vertices; gives everything back by id.

    Integers are numbered in ascending order, strings in the order they first appear in.

    named:   whether names are strings
    memory:  bytes that it may allocate
    seed:    of the hash of strings; `HashCollision` asks for another
    carried: types of the values that travel with each edge, after its weight
    """

    def __init__(
        self,
        scratch: Path,
        *,
        memory: int,
        named: bool,
        weighted: bool = False,
        seed: int = 0,
        carried: Sequence[DTypeLike] = (),
    ) -> None:
        self._directory = scratch
        self._memory = memory
        self._named = named
        self._seed = seed
        self._edges = self._spill([np.uint64, *([np.float32] if weighted else []), *carried])
        # With strings: a second hash, the position of the mention, and where the string stands.
        self._mentions = self._spill([np.uint64, np.int64, np.int64, np.int32] if named else [np.int64])
        self._vertices: Spill | None = None
        self._table = self._spill([np.int64])
        self._strings = Scratch(scratch)
        self._seen = (np.arange(1, _SEEN + 1, dtype=np.uint64) % np.uint64(_SEEN), np.zeros(_SEEN, np.uint64))
        self._positions = 0
        self._longest = 1
        self._lowest, self._highest = 2**63 - 1, -(2**63)

    def _spill(self, dtypes: list[DTypeLike]) -> Spill:
        return Spill(self._directory, _KEY_BITS, dtypes, memory=self._memory // 8, bucket_bits=_BUCKET_BITS)

    def add_edges(self, src: Ids, dst: Ids, weights: EdgeWeights, *carried: NDArray[Any]) -> None:
        """A block of edges, src[e] to dst[e]."""
        keys = self._mention(_interleaved(src, dst))
        columns = () if weights is None else (weights,)
        self._edges.add(keys[0::2], keys[1::2], *columns, *carried)

    def add_vertices(self, ids: Ids, *columns: NDArray[Any]) -> None:
        """A block of vertices, with values that `vertices` gives back."""
        if self._vertices is None:
            self._vertices = self._spill([(values.dtype, values.shape[1:]) for values in columns])
        self._vertices.add(self._mention(ids), *columns)

    def number(self, store: ArrayStarter, progress: ProgressCallback = silent) -> int:
        """Number the vertices and write the store's `ids`; how many there are."""
        ranked = self._ranked(progress)
        ids = store.array("ids", f"S{self._longest}" if self._named else np.int64)
        count = 0
        for leaf in leaves(ranked, self._fits, self._memory // 2):
            ranks, keys, *places = leaf.read_sorted()
            self._table.add(keys, np.arange(count, count + len(keys)))
            if self._named:
                self._write_names(ids, *places)
            else:
                ids.append((leaf.first_key + ranks.astype(np.uint64)).view(np.int64) + self._lowest)
            count += len(keys)
        ranked.close()
        self._table.flush()
        return count

    def edges(self, progress: ProgressCallback = silent) -> Iterator[tuple[IntArray, IntArray, EdgeWeights]]:
        """All edges by id; parallel ones in the order they came in."""
        for src, dst, *weights in self.columns(progress):
            yield src, dst, weights[0] if weights else None

    def columns(self, progress: ProgressCallback = silent) -> Iterator[Columns]:
        """All edges by id, with whatever travels with them."""
        total = len(self._edges)
        by_destination = self._spill([np.int64, *self._edges.dtypes[2:]])
        done = 0
        progress("relabelling edges", 0, 2 * total)
        for src, keys, *more in self._joined(self._edges):
            by_destination.add(keys, src, *more)
            done += len(src)
            progress("relabelling edges", done, 2 * total)
        self._edges.close()
        for dst, src, *more in self._joined(by_destination):
            yield [src, dst, *more]
            done += len(src)
            progress("relabelling edges", done, 2 * total)
        by_destination.close()

    def vertices(self) -> Iterator[Columns]:
        """The vertices that were added: their ids and values, in no order."""
        if self._vertices is not None:
            yield from self._joined(self._vertices)

    def _mention(self, ids: Ids) -> VertexKeys:
        """The ids' keys; those not seen lately are put down as vertices to number."""
        if isinstance(ids, Names):
            keys, checks = hash_names(ids, self._seed)
            kept = _first_seen(keys, checks, *self._seen)
            names = Names(ids.data, ids.starts[kept], ids.lengths[kept])
            offsets = self._keep_strings(names)
            self._mentions.add(keys[kept], checks[kept], self._positions + kept, offsets, names.lengths)
            self._positions += len(keys)
        else:
            ids = ids.astype(np.int64, copy=False)
            keys = _mixed(ids)
            kept = _first_seen(keys, None, *self._seen)
            new = ids[kept]
            self._mentions.add(keys[kept], new)
            self._lowest = min(self._lowest, int(new.min(initial=self._lowest)))
            self._highest = max(self._highest, int(new.max(initial=self._highest)))
        return keys

    def _keep_strings(self, names: Names) -> NDArray[np.int64]:
        longest = int(names.lengths.max(initial=0))
        if longest > LONGEST_NAME:
            name = names.text(int(np.argmax(names.lengths)))[:40].decode(errors="replace")
            raise BadInput(
                f"the id {name!r}… is {longest} bytes long: ids may have up to {LONGEST_NAME}; give vertices shorter ids"
            )
        self._longest = max(self._longest, longest)
        ends = np.cumsum(names.lengths)
        out = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
        _copy_names(names.data, names.starts, ends - names.lengths, names.lengths, out)
        return self._strings.append(out) + ends - names.lengths

    def _ranked(self, progress: ProgressCallback) -> Spill:
        """Each key once, bucketed by what decides the order of ids."""
        span = self._positions if self._named else max(0, self._highest - self._lowest)
        places: list[DTypeLike] = [np.int64, np.int32] if self._named else []
        ranked = Spill(
            self._directory, max(1, span.bit_length()), [np.uint64, *places], memory=self._memory // 4
        )
        done, total = 0, len(self._mentions)
        progress("numbering vertices", 0, total)
        for leaf in leaves(self._mentions, self._fits, self._memory // 2):
            keys, *columns = leaf.read_sorted()
            done += len(keys)
            first = np.flatnonzero(np.diff(keys, prepend=~keys[:1]))
            whole_keys = np.uint64(leaf.first_key) + keys[first].astype(np.uint64)
            if not self._named:
                ranked.add((columns[0][first] - self._lowest).view(np.uint64), whole_keys)
            else:
                checks, positions, *strings = columns
                if not np.array_equal(checks, np.repeat(checks[first], np.diff(first, append=len(keys)))):
                    raise HashCollision
                ranked.add(positions[first].view(np.uint64), whole_keys, *(part[first] for part in strings))
            progress("numbering vertices", done, total)
        self._mentions.close()
        return ranked

    def _fits(self, leaf: Leaf) -> bool:
        return 3 * leaf.count * leaf.spill.record_bytes <= self._memory // 2

    def _write_names(self, ids: ArrayWriter, offsets: NDArray[np.int64], lengths: NDArray[np.int32]) -> None:
        """Append strings to the store; they stand in the scratch file in the order they are wanted in."""
        start = 0
        most = max(1, _NAMES_WINDOW // self._longest)
        while start < len(offsets):
            stop = min(start + most, int(np.searchsorted(offsets, offsets[start] + _NAMES_WINDOW)))
            begin = int(offsets[start])
            data = self._strings.read(np.uint8, int(offsets[stop - 1] + lengths[stop - 1]) - begin, begin)
            out = np.zeros((stop - start) * self._longest, np.uint8)
            into = np.arange(stop - start) * self._longest
            _copy_names(data, offsets[start:stop] - begin, into, lengths[start:stop].astype(np.int64), out)
            ids.append(out.view(f"S{self._longest}"))
            start = stop

    def _joined(self, keyed: Spill) -> Iterator[Columns]:
        """Records by the ids of their keys, a part of a bucket at a time."""
        keyed.flush()
        most = max(1, self._memory // 8 // keyed.record_bytes)
        for bucket in np.flatnonzero(keyed.sizes):
            known, ids = sort_records(self._table.read(int(bucket)), self._table.low_bits)
            density = len(known) / 2.0**self._table.low_bits
            for keys, *columns in keyed.pieces(int(bucket), most):
                yield [_look_up(known, ids, keys, density), *columns]


def _interleaved(src: Ids, dst: Ids) -> Ids:
    """Both ends of each edge in turn: the order in which a reader comes across them."""
    if isinstance(src, Names) and isinstance(dst, Names):
        starts, lengths = (
            np.stack(pair, axis=1).ravel() for pair in ((src.starts, dst.starts), (src.lengths, dst.lengths))
        )
        return Names(src.data, starts, lengths)
    return np.stack((src, dst), axis=1).ravel()  # type: ignore[arg-type]


def hash_names(names: Names, seed: int) -> tuple[VertexKeys, VertexKeys]:
    """Each string's key, and a second hash that tells apart strings whose keys are equal."""
    return _hash(names.data, names.starts, names.lengths, np.uint64(seed))


@kernel
def _mixed(ids: NDArray[np.int64]) -> VertexKeys:
    keys = np.empty(len(ids), np.uint64)
    for i in range(len(ids)):
        keys[i] = mix(np.uint64(ids[i]) + GOLDEN)
    return keys


@kernel
def _hash(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64], seed: np.uint64
) -> tuple[VertexKeys, VertexKeys]:
    keys, checks = np.empty(len(starts), np.uint64), np.empty(len(starts), np.uint64)
    for i in range(len(starts)):
        key = mix(seed + GOLDEN)
        check = mix(seed + np.uint64(0xD6E8FEB86659FD93))
        for at in range(starts[i], starts[i] + lengths[i]):
            key = (key ^ np.uint64(data[at])) * np.uint64(0x100000001B3)
            check = (check + np.uint64(data[at])) * np.uint64(0xFF51AFD7ED558CCD)
            check ^= check >> np.uint64(29)
        keys[i] = mix(key + np.uint64(lengths[i]))
        checks[i] = mix(check)
    return keys, checks


@kernel
def _first_seen(
    keys: VertexKeys, checks: Any, seen: VertexKeys, seen_checks: VertexKeys
) -> NDArray[np.int64]:
    """Positions of the keys that were not seen lately. `HashCollision`: two strings are found to share a key."""
    kept = np.empty(len(keys), np.int64)
    count = 0
    mask = np.uint64(len(seen) - 1)
    for i in range(len(keys)):
        slot = keys[i] & mask
        if seen[slot] == keys[i]:
            if checks is not None and seen_checks[slot] != checks[i]:
                raise HashCollision
            continue
        seen[slot] = keys[i]
        if checks is not None:
            seen_checks[slot] = checks[i]
        kept[count] = i
        count += 1
    return kept[:count]


@kernel
def _copy_names(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    into: NDArray[np.int64],
    lengths: NDArray[np.int64],
    out: NDArray[np.uint8],
) -> None:
    for i in range(len(starts)):
        for k in range(lengths[i]):
            out[into[i] + k] = data[starts[i] + k]


@kernel
def _look_up(known: Any, ids: NDArray[np.int64], keys: Any, density: float) -> NDArray[np.int64]:
    """The id of each key. Keys are spread evenly, so where one stands can be told to within a few places."""
    out = np.empty(len(keys), np.int64)
    for i in range(len(keys)):
        at = min(int(keys[i] * density), len(known) - 1)
        while at > 0 and known[at] > keys[i]:
            at -= 1
        while at < len(known) - 1 and known[at] < keys[i]:
            at += 1
        out[i] = ids[at]
    return out
