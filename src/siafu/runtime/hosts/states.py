"""States: the weights and optimizer's state that a run has of its last versions, each from the homes that made them."""

from torch import Tensor

from siafu.pipeline.ids import ServerId, Version
from siafu.runtime.happenings import Snapshot
from siafu.runtime.hosts.weight_host import STATE, WEIGHT
from siafu.runtime.letter import Letter


class States:
    """Versions that a run can begin again with, and one that is evaluated. No tensor in it is ever changed.

    start: the first of them, whole
    """

    def __init__(self, start: Snapshot) -> None:
        self._start = start
        self._came: dict[Version, dict[ServerId, Letter]] = {}

    def keep(self, home: ServerId, version: Version, came: Letter) -> None:
        """Keep the letter that brought what a home has made of a version; again, if it was made again."""
        if came.borrowed:
            came = Letter(came.event, came.owned())
        self._came.setdefault(version, {})[home] = came

    def forget(self, before: Version, held: Version | None) -> None:
        """Let go of the versions before one, but of that one which is held."""
        for version in [each for each in self._came if each < before and each != held]:
            del self._came[version]

    def weights(self, version: Version) -> dict[str, Tensor]:
        """All weights of a version."""
        found = dict(self._start.weights)
        for came in self._of(version):
            found.update(came.owned(WEIGHT))
        return found

    def optimizer(self, version: Version) -> dict[str, Tensor]:
        """The optimizer's state after a version was made."""
        if version == self._start.version:
            return dict(self._start.optimizer)
        return {name: each for came in self._of(version) for name, each in came.owned(STATE).items()}

    def _of(self, version: Version) -> list[Letter]:
        return [] if version == self._start.version else list(self._came[version].values())
