"""Closing: the last epoch's end that a run can begin again from."""

from siafu.pipeline.ids import Anchor, Epoch, ServerId, Version


class Closing:
    """The last epoch's end whose weights and optimizer's state are all at the run.

    anchor: that epoch's end: the epochs before it are closed
    """

    def __init__(self, homes: frozenset[ServerId], anchor: Anchor) -> None:
        self.anchor = anchor
        self._homes = homes
        self.begin_again()

    def begin_again(self) -> None:
        """A server is lost: the homes make again what they made since."""
        self._kept: dict[ServerId, set[Version]] = {home: set() for home in self._homes}

    def lose(self, home: ServerId) -> None:
        """A home is lost: it makes again what it made since."""
        if home in self._kept:
            self._kept[home] = set()

    def take(self, home: ServerId, version: Version) -> bool:
        """A home's state of a version came: whether it is new."""
        if version <= self.anchor.version or version in self._kept[home]:
            return False
        self._kept[home].add(version)
        return True

    @property
    def is_complete(self) -> bool:
        """Whether the states of the next epoch's end are all here."""
        following = self.anchor.version + 1
        return all(following in kept for kept in self._kept.values())

    def close(self) -> None:
        """One epoch more is closed."""
        self.anchor = Anchor(Epoch(self.anchor.epoch + 1), Version(self.anchor.version + 1))
        for kept in self._kept.values():
            kept.discard(self.anchor.version)

    def epochs(self, version: Version) -> Epoch:
        """How many epochs made a version."""
        return Epoch(self.anchor.epoch + version - self.anchor.version)

    def validate(self) -> None:
        """Raise AssertionError where the state contradicts itself."""
        late = {
            home: kept
            for home, kept in self._kept.items()
            if min(kept, default=1 << 62) <= self.anchor.version
        }
        assert not late, f"closed at {self.anchor}, and these are still to come: {late}"
