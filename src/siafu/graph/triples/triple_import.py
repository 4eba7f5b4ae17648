"""Import of triples: any input that a reader knows to a store, in bounded memory.

Entities are numbered by the `Relabeller`, on disk. Triples are then bucketed by a hash of theirs, so that equal ones meet, and
written bucket by bucket: the store has them in an order that looks random and is the same for the same input. The
names of relations are held in memory.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from siafu.base.errors import BadInput
from siafu.base.hashing import GOLDEN, mix
from siafu.base.jit import kernel
from siafu.graph.importing.importer import memory_budget
from siafu.graph.importing.inputs import block_bytes
from siafu.graph.importing.readers.blocks import Ids, Names
from siafu.graph.importing.relabel import LONGEST_NAME, HashCollision, Relabeller, hash_names
from siafu.graph.progress import ProgressCallback, silent
from siafu.graph.sorting.spill import Leaf, Spill, leaves
from siafu.graph.stores.store import ArrayWriter
from siafu.graph.triples.triple_sources import TripleBlock, TripleOptions, TripleSource, open_triples
from siafu.graph.triples.triple_store import TripleStoreWriter
from siafu.graph.triples.triples import SPLITS

_SEEDS = 8
_ONE_RELATION = b"edge"
_MOST_RELATIONS = 1 << 26

Columns = list[NDArray[Any]]  # head, tail, relation, split


@dataclass(frozen=True, slots=True)
class TripleImport:
    """How to read triples and how to store them.

    input:        which columns
    dense:        use numbers as they are: entities go from 0 to the highest
    holdout:      share of the triples that is held out for validation, and as many for the test; only of one file
    memory_limit: bytes the whole process may use; None: what is free less a reserve, half of the machine's at most
    """

    input: TripleOptions = field(default_factory=TripleOptions)
    dense: bool = False
    holdout: float = 0.0
    memory_limit: int | None = None
    overwrite: bool = False
    name: str | None = None


@dataclass(slots=True)
class ImportedTriples:
    """Counts of imported triples.

    triples:    by split, without duplicates
    duplicates: triples that stood more than once in their split, and were stored once
    leaked:     triples of valid and test that stand in train as well: their ranks say little
    unseen:     entities that only valid or test name: nothing is learnt of them
    self_loops: triples whose head is their tail
    ignored:    columns that are no part of a triple, and were left out
    """

    num_entities: int
    num_relations: int
    triples: dict[str, int]
    duplicates: int
    leaked: dict[str, int]
    unseen: int
    self_loops: int
    ignored: tuple[str, ...] = ()

    def warnings(self) -> Iterator[str]:
        """Lines that a user should read before training on them."""
        if self.ignored:
            yield f"left out, as triples have head, relation and tail alone: {', '.join(self.ignored)}"
        if self.duplicates:
            yield f"{self.duplicates:,} triples stood more than once and are stored once"
        for split, count in self.leaked.items():
            if count:
                yield f"{count:,} of {self.triples[split]:,} triples of {split} stand in train, too: scores on {split} will look better than they are"
        if self.unseen:
            yield f"{self.unseen:,} entities are named by valid or test alone: nothing is learnt of them, and they count as candidates"
        if self.self_loops:
            yield f"{self.self_loops:,} triples lead from an entity to itself"


def import_triples(
    source: Path, target: Path, options: TripleImport | None = None, progress: ProgressCallback = silent
) -> ImportedTriples:
    """Read `source` and write a store of triples to `target`; nothing is seen there before all of it is written."""
    options = options or TripleImport()
    memory = memory_budget(options.memory_limit)
    found = open_triples(source, options.input, block_bytes(memory))
    if options.holdout and len(found.parts) > 1:
        raise BadInput(f"{source} has its own valid and test: leave --holdout out")
    with TripleStoreWriter(target, overwrite=options.overwrite) as store:
        done = _Importing(store, found, options, memory, progress).run()
        done.ignored = found.ignored
        name = options.name or source.name.removesuffix(".gz").rsplit(".", 1)[0]
        store.commit(name=name, num_entities=done.num_entities, num_relations=done.num_relations)
    return done


class RelationIds:
    """Numbers relations: strings in the order they first appear in, integers in ascending order. Holds them in memory."""

    def __init__(self) -> None:
        self._known: dict[bytes | int, int] = {}

    def __len__(self) -> int:
        return len(self._known)

    def add(self, relation: Ids) -> NDArray[np.int32]:
        """Provisional numbers, by first appearance."""
        if isinstance(relation, Names):
            keys, checks = hash_names(relation, 0)
            _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
            if not np.array_equal(checks, checks[first][inverse]):
                first, inverse = np.arange(relation.size), np.arange(relation.size)
            if relation.size and relation.lengths.max() > LONGEST_NAME:
                raise BadInput(
                    f"a relation's name has {relation.lengths.max()} bytes: names may have up to {LONGEST_NAME}"
                )
            order = np.argsort(first)
            numbers = np.empty(len(first), np.int32)
            for k in order:
                numbers[k] = self._number(relation.text(int(first[k])))
            return numbers[inverse]
        values, inverse = np.unique(relation, return_inverse=True)
        return np.array([self._number(int(value)) for value in values], np.int32)[inverse]

    def _number(self, name: bytes | int) -> int:
        if len(self._known) >= _MOST_RELATIONS:
            raise BadInput(
                f"there are more than {_MOST_RELATIONS:,} relations: are the columns head, relation, tail?"
            )
        return self._known.setdefault(name, len(self._known))

    def final(self) -> tuple[NDArray[np.int32], NDArray[Any]]:
        """The final number of each provisional one, and the names in the final order."""
        listed = list(self._known)
        if listed and isinstance(listed[0], bytes):
            return np.arange(len(listed), dtype=np.int32), np.array(listed, dtype="S")
        values = np.array(listed, np.int64)
        order = np.argsort(values)
        final = np.empty(len(listed), np.int32)
        final[order] = np.arange(len(listed), dtype=np.int32)
        return final, values[order]


@dataclass(slots=True)
class _Importing:
    """One import under way."""

    store: TripleStoreWriter
    found: TripleSource
    options: TripleImport
    memory: int
    progress: ProgressCallback

    @property
    def scratch(self) -> Path:
        return self.store.path.parent

    def run(self) -> ImportedTriples:
        if self._as_they_are and not self.found.named:
            return self._dense()
        for seed in range(_SEEDS):
            try:
                return self._relabelled(seed)
            except HashCollision:
                continue
        raise BadInput("the entities' hashes keep colliding: give them other names")

    @property
    def _as_they_are(self) -> bool:
        return self.options.dense or self.found.num_entities is not None

    def _dense(self) -> ImportedTriples:
        """Use the numbers of entities as they are."""
        relations = RelationIds()
        triples = self._spill()
        highest = -1
        for block in self._blocks():
            assert not isinstance(block.head, Names) and not isinstance(block.tail, Names)
            for ends in (block.head, block.tail):
                if ends.min(initial=0) < 0:
                    raise BadInput(
                        f"entity {ends.min()} is negative: dense ids go from 0 up; leave out --ids dense"
                    )
                highest = max(highest, int(ends.max(initial=-1)))
            split, kinds = self._carried(block, relations)
            triples.add(_keys(block.head, kinds, block.tail), block.head, block.tail, kinds, split)
        count = self.found.num_entities
        if count is not None and count <= highest:
            raise BadInput(f"there are entities up to {highest}, but num_entities is {count}: mend the file")
        return self._write(triples, highest + 1 if count is None else count, relations)

    def _relabelled(self, seed: int) -> ImportedTriples:
        """Number the entities anew."""
        relations = RelationIds()
        relabeller = Relabeller(
            self.scratch,
            memory=self.memory // 2,
            named=self.found.named,
            seed=seed,
            carried=[np.int32, np.uint8],
        )
        for block in self._blocks():
            split, kinds = self._carried(block, relations)
            relabeller.add_edges(block.head, block.tail, None, kinds, split)
        num_entities = relabeller.number(self.store, self.progress)
        triples = self._spill()
        for head, tail, kinds, split in relabeller.columns(self.progress):
            triples.add(_keys(head, kinds, tail), head, tail, kinds, split)
        return self._write(triples, num_entities, relations)

    def _spill(self) -> Spill:
        dtypes = [np.int64, np.int64, np.int32, np.uint8]
        return Spill(self.scratch, 64, dtypes, memory=self.memory // 8, bucket_bits=10)

    def _carried(
        self, block: TripleBlock, relations: RelationIds
    ) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
        count = block.head.size
        if block.relation is None:
            block = block._replace(relation=_repeated(_ONE_RELATION, count))
        elif self.found.num_relations is not None:
            assert not isinstance(block.relation, Names)
            if (
                block.relation.size
                and not 0 <= block.relation.min() <= block.relation.max() < self.found.num_relations
            ):
                raise BadInput(
                    f"there are relations from {block.relation.min()} to {block.relation.max()}, but num_relations is {self.found.num_relations}: mend the file"
                )
            return np.full(count, block.split, np.uint8), block.relation.astype(np.int32)
        assert block.relation is not None
        return np.full(count, block.split, np.uint8), relations.add(block.relation)

    def _blocks(self) -> Iterator[TripleBlock]:
        done = 0
        self.progress("reading triples", 0, 0)
        for block in self.found.blocks():
            yield block
            done += block.head.size
            self.progress("reading triples", done, int(done / max(block.read, 1e-9)))

    def _write(self, triples: Spill, num_entities: int, relations: RelationIds) -> ImportedTriples:
        if len(triples) == 0:
            raise BadInput("the input has no triples: give lines of head, relation, tail")
        num_relations = self.found.num_relations
        final = None
        if num_relations is None:
            final, names = relations.final()
            num_relations = len(names)
            self.store.array("relations", names.dtype).append(names)
        dtype = np.int32 if num_entities < 2**31 else np.int64
        writers = [self.store.array(split, dtype, (3,)) for split in SPLITS]
        written = _Written(writers, num_entities)
        done, total = 0, len(triples)
        self.progress("writing triples", 0, total)
        for leaf in leaves(triples, self._fits, self.memory // 4):
            done += leaf.count
            written.add(_in_order(leaf), final, self.options.holdout)
            self.progress("writing triples", done, total)
        triples.close()
        if writers[0].rows == 0:
            raise BadInput("the input has no triples to train on: check the file train")
        return written.counts(num_entities, num_relations)

    def _fits(self, leaf: Leaf) -> bool:
        return 6 * leaf.count * leaf.spill.record_bytes <= self.memory // 2


class _Written:
    """Writes the triples, and counts what is told of them."""

    def __init__(self, writers: list[ArrayWriter], num_entities: int) -> None:
        self._writers = writers
        self._trained = np.zeros(num_entities, np.bool_)
        self._named = np.zeros(num_entities, np.bool_)
        self._duplicates = self._self_loops = 0
        self._leaked = [0, 0, 0]

    def add(self, triples: "_Sorted", final: NDArray[np.int32] | None, holdout: float) -> None:
        """Some triples, of which equal ones stand together, the one of the lowest split first."""
        head, relation, tail, split = triples.head, triples.relation, triples.tail, triples.split
        same = np.zeros(len(head), np.bool_)
        same[1:] = (head[1:] == head[:-1]) & (relation[1:] == relation[:-1]) & (tail[1:] == tail[:-1])
        repeated = np.zeros(len(head), np.bool_)
        repeated[1:] = same[1:] & (split[1:] == split[:-1])
        first_of_group = np.maximum.accumulate(np.where(same, 0, np.arange(len(head))))
        leaked = ~repeated & (split > 0) & (split[first_of_group] == 0)
        self._duplicates += int(repeated.sum())
        kept = ~repeated
        if holdout:
            split = np.where(split == 0, _drawn(triples.key, holdout), split)
        rows = np.stack([head, relation if final is None else final[relation], tail], axis=1)
        for number, writer in enumerate(self._writers):
            chosen = kept & (split == number)
            self._leaked[number] += int((chosen & leaked).sum())
            self._self_loops += int((chosen & (head == tail)).sum())
            writer.append(rows[chosen])
            seen = self._trained if number == 0 else self._named
            seen[head[chosen]] = True
            seen[tail[chosen]] = True

    def counts(self, num_entities: int, num_relations: int) -> ImportedTriples:
        return ImportedTriples(
            num_entities,
            num_relations,
            {split: writer.rows for split, writer in zip(SPLITS, self._writers, strict=True)},
            self._duplicates,
            dict(zip(SPLITS[1:], self._leaked[1:], strict=True)),
            int((self._named & ~self._trained).sum()),
            self._self_loops,
        )


class _Sorted(NamedTuple):
    key: NDArray[np.uint64]
    head: NDArray[np.int64]
    relation: NDArray[np.int32]
    tail: NDArray[np.int64]
    split: NDArray[np.uint8]


def _in_order(leaf: Leaf) -> _Sorted:
    low, head, tail, relation, split = leaf.spill.read(leaf.bucket)
    order = np.lexsort((split, tail, relation, head, low))
    key = np.uint64(leaf.first_key) + low[order].astype(np.uint64)
    return _Sorted(key, head[order], relation[order], tail[order], split[order])


def _repeated(name: bytes, count: int) -> Names:
    data = np.frombuffer(name, np.uint8).copy()
    return Names(data, np.zeros(count, np.int64), np.full(count, len(name), np.int64))


@kernel
def _keys(
    head: NDArray[np.int64], relation: NDArray[np.int32], tail: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """A hash of each triple."""
    keys = np.empty(len(head), np.uint64)
    for i in range(len(head)):
        key = mix(np.uint64(head[i]) + GOLDEN)
        key = mix((key ^ np.uint64(relation[i])) + GOLDEN)
        keys[i] = mix((key ^ np.uint64(tail[i])) + GOLDEN)
    return keys


@kernel
def _drawn(keys: NDArray[np.uint64], share: float) -> NDArray[np.uint8]:
    """The split of each triple, drawn by its hash: valid and test get `share` each."""
    out = np.empty(len(keys), np.uint8)
    for i in range(len(keys)):
        u = np.float64(mix(keys[i] + GOLDEN) >> np.uint64(11)) * 2.0**-53
        out[i] = 1 if u < share else (2 if u < 2.0 * share else 0)
    return out
