"""Blocks: what a Lambda keeps from one task on some rows to the next: the server decides, and so always knows.

Of each block a Lambda may keep rows that never change, and a *stash*: what the forward task of one pass over them made,
for the backward task of the same pass.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class KeptStash:
    """tag: of which pass it is; sizes: of what there is, in bytes"""

    tag: int
    sizes: dict[str, int]


@dataclass(frozen=True, slots=True)
class Gone:
    """What a Lambda has to let go of: the stashes of some blocks, and all of others."""

    stashes: list[int] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)


@dataclass(slots=True)
class KeptBlocks:
    """What one Lambda keeps, in the order of its last use.

    most:     bytes that it may keep
    promised: bytes that it will, when it is done with what it has in hand
    """

    most: int
    promised: int = 0
    _sizes: dict[int, dict[str, int]] = field(default_factory=dict)
    _stashes: dict[int, KeptStash] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """All that it keeps, and will."""
        return self.promised + sum(map(self._bytes_of, {*self._sizes, *self._stashes}))

    def names(self, block: int) -> frozenset[str]:
        """What never changes and it has of a block."""
        return frozenset(self._sizes.get(block, ()))

    def use(self, block: int) -> None:
        """It has just been of use: others go first."""
        if block in self._sizes:
            self._sizes[block] = self._sizes.pop(block)

    def add(self, block: int, sizes: dict[str, int]) -> None:
        """It keeps these from now on."""
        self._sizes[block] = self._sizes.pop(block, {}) | sizes

    def drop(self, block: int) -> None:
        """It keeps nothing of it any more."""
        self._sizes.pop(block, None)
        self._stashes.pop(block, None)

    def has_stash(self, block: int, tag: int, names: Iterable[str]) -> bool:
        """Whether it has all of these, of that pass."""
        found = self._stashes.get(block)
        return found is not None and found.tag == tag and found.sizes.keys() >= set(names)

    def add_stash(self, block: int, tag: int, sizes: dict[str, int]) -> None:
        self._stashes[block] = KeptStash(tag, sizes)

    def drop_stash(self, block: int) -> None:
        self._stashes.pop(block, None)

    def make_room(self, block: int, wanted: int) -> Gone | None:
        """What must go so that so many bytes more of `block`'s constants can be kept; None: they never can.

        Stashes go first: they spare one task some time, constants every one.
        """
        own = _total(self._sizes.get(block, {})) + self.promised
        if own + wanted > self.most:
            return None
        gone = Gone()
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
