"""Blocks: rows that never change, and which of them a Lambda keeps: the server decides, and so always knows."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class KeptBlocks:
    """What one Lambda keeps, in the order of its last use.

    most: bytes that it may keep
    """

    most: int
    _sizes: dict[int, dict[str, int]] = field(default_factory=dict)

    def names(self, block: int) -> frozenset[str]:
        """What it has of a block."""
        return frozenset(self._sizes.get(block, ()))

    def use(self, block: int) -> None:
        """It has just been of use: others go first."""
        if block in self._sizes:
            self._sizes[block] = self._sizes.pop(block)

    def add(self, block: int, sizes: dict[str, int]) -> None:
        """It keeps these from now on."""
        self._sizes[block] = self._sizes.pop(block, {}) | sizes

    def drop(self, block: int) -> None:
        self._sizes.pop(block, None)

    def make_room(self, block: int, wanted: int) -> list[int] | None:
        """The blocks that must go so that so many bytes more of `block` can be kept; None: they never can."""
        others = {each: sum(sizes.values()) for each, sizes in self._sizes.items() if each != block}
        used = sum(others.values()) + sum(self._sizes.get(block, {}).values())
        if used - sum(others.values()) + wanted > self.most:
            return None
        gone: list[int] = []
        for each, size in others.items():
            if used + wanted <= self.most:
                break
            gone.append(each)
            used -= size
        for each in gone:
            self.drop(each)
        return gone
