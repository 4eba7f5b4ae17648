"""EdgeTypes: types of edges as they are read, numbers or names; names are numbered in alphabetical order."""

import numpy as np
from numpy.typing import NDArray

from siafu.base.errors import BadInput
from siafu.graph.edge_data import MAX_RELATIONS
from siafu.graph.importing.readers.blocks import Names
from siafu.graph.importing.relabel import hash_names


class EdgeTypes:
    """Takes types in blocks and gives each new name the next number; `ranks` turns those into the order of the names."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self.highest = -1

    def numbers(self, types: NDArray[np.float32] | Names) -> NDArray[np.int32]:
        """The number of each type of a block."""
        found = self._named(types) if isinstance(types, Names) else _whole(types)
        self.highest = max(self.highest, int(found.max(initial=-1)))
        return found

    @property
    def count(self) -> int:
        return self.highest + 1

    @property
    def names(self) -> tuple[str, ...]:
        """All names in alphabetical order: type 0 is the first; none where types are numbers."""
        return tuple(name.decode(errors="replace") for name in sorted(self._numbers))

    @property
    def ranks(self) -> NDArray[np.int32] | None:
        """For each number, its name's place in the alphabet; None where types are numbers."""
        if not self._numbers:
            return None
        ranks = np.empty(len(self._numbers), np.int32)
        ranks[[self._numbers[name] for name in sorted(self._numbers)]] = np.arange(len(ranks))
        return ranks

    def _named(self, names: Names) -> NDArray[np.int32]:
        """Names are few and edges many: each name is looked up once a block, edges go by its hash."""
        keys, checks = hash_names(names, 0)
        _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        if not np.array_equal(checks, checks[first][inverse]):  # two names of one hash: one by one
            first, inverse = np.arange(names.size), np.arange(names.size)
        found = np.array([self._number(names.text(row)) for row in first.tolist()], np.int32)
        return found[inverse]

    def _number(self, name: bytes) -> int:
        number = self._numbers.setdefault(name, len(self._numbers))
        if number >= MAX_RELATIONS:
            raise BadInput(
                f"there are more than {MAX_RELATIONS:,} different types of edges: is it the right column?"
            )
        return number


def _whole(values: NDArray[np.float32]) -> NDArray[np.int32]:
    """Numbers as types: whole, from 0 up."""
    wrong = ~((values >= 0) & (values < MAX_RELATIONS))
    if not wrong.any():
        found = values.astype(np.int32)
        wrong = found != values
        if not wrong.any():
            return found
    raise BadInput(
        f"an edge has the type {values[np.argmax(wrong)]:g}: number the types from 0 up, below {MAX_RELATIONS:,}, or name them"
    )
