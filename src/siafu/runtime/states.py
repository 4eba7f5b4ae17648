"""States: the weights and optimizer's state that a run has of its last versions, each from the homes that made them."""

from collections.abc import Mapping

from torch import Tensor

from siafu.pipeline.ids import ServerId, Version
from siafu.runtime.happenings import Snapshot

Tensors = Mapping[str, Tensor]


class States:
    """Versions that a run can begin again with, and one that is evaluated. No tensor in it is ever changed.

    start: the first of them, whole
    """

    def __init__(self, start: Snapshot) -> None:
        self._start = start
        self._parts: dict[Version, dict[ServerId, tuple[Tensors, Tensors]]] = {}

    def keep(self, home: ServerId, version: Version, weights: Tensors, optimizer: Tensors) -> None:
        """Keep what a home has made of a version; again, if it was made again."""
        self._parts.setdefault(version, {})[home] = weights, optimizer

    def forget(self, before: Version, held: Version | None) -> None:
        """Let go of the versions before one, but of that one which is held."""
        for version in [each for each in self._parts if each < before and each != held]:
            del self._parts[version]

    def weights(self, version: Version) -> dict[str, Tensor]:
        """All weights of a version."""
        found = dict(self._start.weights)
        for weights, _ in self._of(version):
            found.update(weights)
        return found

    def optimizer(self, version: Version) -> dict[str, Tensor]:
        """The optimizer's state after a version was made."""
        if version == self._start.version:
            return dict(self._start.optimizer)
        return {name: each for _, state in self._of(version) for name, each in state.items()}

    def _of(self, version: Version) -> list[tuple[Tensors, Tensors]]:
        return [] if version == self._start.version else list(self._parts[version].values())
