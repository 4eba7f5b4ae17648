"""KeptVersions: which versions of its partitions a keeper has, and which of its two places for each a new one takes.

Of each partition there is a version that counts, and at most one that is being trained from it. A keeper never gives the first away for the
second, whatever comes late or twice.
"""

PLACES = 2


class KeptVersions:
    """Versions by partition and place; None: nothing, or half of something."""

    def __init__(self, partitions: tuple[int, ...]) -> None:
        self.partitions = partitions
        self._versions: dict[int, list[int | None]] = {each: [None] * PLACES for each in partitions}

    def find(self, partition: int, version: int) -> int | None:
        """The place of a version; None: it is not here."""
        places = self._versions.get(partition, [])
        return places.index(version) if version in places else None

    def place_for_trained(self, partition: int, version: int, base: int) -> int | None:
        """Where to write what was trained from `base`; None: nowhere, for it is older than what is here.

        Other versions above `base` are of leases that were abandoned.
        """
        places = self._versions[partition]
        if any(each is not None and each > version for each in places):
            return None
        return self._empty(
            partition, min(range(PLACES), key=lambda place: _rank_of_trained(places[place], base))
        )

    def place_for_copy(self, partition: int, version: int) -> int | None:
        """Where to write a version that counts; None: nowhere, for what is here is newer."""
        places = self._versions[partition]
        older = [place for place, each in enumerate(places) if each is None or each < version]
        if not older:
            return None
        return self._empty(partition, min(older, key=lambda place: places[place] or -1))

    def fill(self, partition: int, place: int, version: int) -> None:
        """The place has that version, all of it."""
        self._versions[partition][place] = version

    def _empty(self, partition: int, place: int) -> int:
        self._versions[partition][place] = None
        return place


def _rank_of_trained(version: int | None, base: int) -> int:
    """Order in which versions make room: what is void, then an empty place, then what is older, and never the base."""
    if version is None:
        return 1
    return 3 if version == base else 0 if version > base else 2
