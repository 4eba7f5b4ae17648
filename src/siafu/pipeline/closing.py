"""Closing: the last epoch's end that a run with exact epochs can begin again from."""

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
        self._kept = dict.fromkeys(self._homes, self.anchor.version)

    def take(self, home: ServerId, version: Version) -> bool:
        """A home's state of a version came: whether it is new."""
        if version <= self._kept[home]:
            return False
        self._kept[home] = version
        return True

    @property
    def is_complete(self) -> bool:
        """Whether the states of the next epoch's end are all here."""
        return min(self._kept.values()) > self.anchor.version

    def close(self) -> None:
        """One epoch more is closed."""
        self.anchor = Anchor(Epoch(self.anchor.epoch + 1), Version(self.anchor.version + 1))

    def epochs(self, version: Version) -> Epoch:
        """How many epochs made a version."""
        return Epoch(self.anchor.epoch + version - self.anchor.version)

    def validate(self) -> None:
        """Raise AssertionError where the state contradicts itself."""
        behind = {home: version for home, version in self._kept.items() if version < self.anchor.version}
        assert not behind, f"closed at {self.anchor}, and of these homes there is less: {behind}"
