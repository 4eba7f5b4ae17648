"""Blocks: rows that a Lambda keeps from one task to the next. The server decides what is kept, so it always knows.

Of each block a Lambda may keep rows that never change, and a *stash*: rows that the forward task of one pass made for
the backward task of the same pass.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class KeptStash:
    """A stash that a Lambda keeps.

    tag:   the pass that made it
    sizes: bytes of each tensor, by name
    """

    tag: int
    sizes: dict[str, int]


@dataclass(frozen=True, slots=True)
class Evicted:
    """Blocks that a Lambda has to forget: of some only the stash, of others everything."""

    stashes: list[int] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)


@dataclass(slots=True)
class KeptBlocks:
    """Blocks that one Lambda keeps, the least recently used first.

    most:     bytes that the Lambda may keep
    promised: bytes that its current tasks will add
    """

    most: int
    promised: int = 0
    _sizes: dict[int, dict[str, int]] = field(default_factory=dict)
    _stashes: dict[int, KeptStash] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Bytes kept, and promised."""
        return self.promised + sum(map(self._bytes_of, {*self._sizes, *self._stashes}))

    def names(self, block: int) -> frozenset[str]:
        """Constants of a block that the Lambda has."""
        return frozenset(self._sizes.get(block, ()))

    def use(self, block: int) -> None:
        """Mark a block as just used: others are evicted first."""
        if block in self._sizes:
            self._sizes[block] = self._sizes.pop(block)

    def add(self, block: int, sizes: dict[str, int]) -> None:
        """The Lambda keeps these constants of a block from now on."""
        self._sizes[block] = self._sizes.pop(block, {}) | sizes

    def drop(self, block: int) -> None:
        """The Lambda keeps nothing of a block any more."""
        self._sizes.pop(block, None)
        self._stashes.pop(block, None)

    def has_stash(self, block: int, tag: int, names: Iterable[str]) -> bool:
        """Whether the stash of a block has all these tensors, of this pass."""
        found = self._stashes.get(block)
        return found is not None and found.tag == tag and found.sizes.keys() >= set(names)

    def add_stash(self, block: int, tag: int, sizes: dict[str, int]) -> None:
        self._stashes[block] = KeptStash(tag, sizes)

    def drop_stash(self, block: int) -> None:
        self._stashes.pop(block, None)

    def make_room(self, block: int, wanted: int) -> Evicted | None:
        """Evict blocks until `wanted` bytes of `block`'s constants fit; None: they never fit.

        Stashes go first: a stash saves time in one task, constants in every task.
        """
        own = _total(self._sizes.get(block, {})) + self.promised
        if own + wanted > self.most:
            return None
        gone = Evicted()
        for each in list(self._stashes):
            if self.bytes + wanted <= self.most:
                break
            self.drop_stash(each)
            gone.stashes.append(each)
        for each in [other for other in self._sizes if other != block]:
            if self.bytes + wanted <= self.most:
                break
            self.drop(each)
            gone.blocks.append(each)
        return gone

    def _bytes_of(self, block: int) -> int:
        stash = self._stashes.get(block)
        return _total(self._sizes.get(block, {})) + (0 if stash is None else _total(stash.sizes))


def _total(sizes: dict[str, int]) -> int:
    return sum(sizes.values())
