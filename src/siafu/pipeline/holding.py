"""Which versions a weight server holds: those that someone holds, or where epochs close, those from the open epoch on."""

from collections import Counter

from siafu.pipeline.ids import Epoch, IntervalId, Version

Holder = tuple[IntervalId | None, Epoch]
"""Who uses a version: an interval in an epoch; None: the evaluation after it."""


class PinnedVersions:
    """Versions that intervals and an evaluation hold, each until it is released.

    pins: who holds which version
    uses: how many hold each
    """

    def __init__(self) -> None:
        self.pins: dict[Holder, Version] = {}
        self.uses: Counter[Version] = Counter()

    def hold(self, holder: Holder, version: Version) -> None:
        self.pins[holder] = version
        self.uses[version] += 1

    def release(self, holder: Holder) -> Version | None:
        """A holder is done with its version, which is returned; None: it has none."""
        version = self.pins.pop(holder, None)
        if version is not None:
            self.uses[version] -= 1
            if not self.uses[version]:
                del self.uses[version]
        return version

    def needs(self, version: Version) -> bool:
        return version in self.uses

    def validate(self) -> None:
        """Raise AssertionError where the state contradicts itself."""
        assert self.uses == Counter(self.pins.values()), f"uses {self.uses}, pins {self.pins}"


class OpenVersions:
    """Versions from that of the open epoch on, and that of an evaluation: whoever is lost needs them again.

    oldest: the open epoch's
    held:   an evaluation's; None: no earlier one is in use
    """

    def __init__(self, oldest: Version, held: Version | None = None) -> None:
        self.oldest, self.held = oldest, held

    def needs(self, version: Version) -> bool:
        return version >= self.oldest or version == self.held
