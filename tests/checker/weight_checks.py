"""Checks of weights: each gradient counts once, versions are made of the right ones, and held while in use."""

from siafu.pipeline.ids import PhaseId, ServerId, Version
from siafu.pipeline.instructions import Accumulate, RunTask
from siafu.pipeline.setup import Setup
from tests.checker.symbols import Gradient, Part, Shelf
from tests.checker.truth import Truth, require


class WeightChecks:
    """Invariants 1, 3 and 4, as far as weight servers keep them, and the policies."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._phases: dict[ServerId, list[PhaseId]] = {}
        for phase, home in setup.homes.items():
            self._phases.setdefault(home, []).append(phase)

    def read(self, truth: Truth, run: RunTask, shelf: Shelf) -> None:
        """A task reads its weights."""
        parts = shelf.parts.get(run.version, {})
        held = parts.keys() == self._setup.parts
        require(held, "a version is held while it is in use", run, parts)
        for part in parts.values():
            require(part.incarnation == truth.incarnation, "weights are of this incarnation", run.task, part)

    def accumulated(self, truth: Truth, added: Accumulate, gradient: Gradient | None) -> None:
        require(gradient is not None, "only gradients that came are added", added)
        if gradient is None:
            return
        require(gradient.incarnation == truth.incarnation, "gradients are of this incarnation", gradient)
        key = gradient.epoch, gradient.phase, gradient.interval
        require(key not in truth.added, "each gradient is applied once", gradient, added)
        truth.added.add(key)
        # One that was given up may have entered since, and be heard until others know of its successor, who must agree.
        entered = "train", gradient.interval, gradient.epoch
        version = truth.versions.setdefault(entered, gradient.version)
        require(gradient.version == version, "forward and backward use one version", gradient, version)

    def made(self, truth: Truth, part: Part) -> None:
        """A home has made its part of a version."""
        key = part.home, part.version
        if key in truth.remade:
            truth.remade.remove(key)
            same = truth.parts[key].gradients == part.gradients
            require(same, "a version that is made again is made of the same", part, truth.parts[key])
            return
        require(key not in truth.parts, "a version is made once", part.home, part.version)
        before = Version(part.version - 1)
        require(
            part.version == truth.start.version + 1 or (part.home, before) in truth.parts,
            "versions are made in order",
            part.home,
            part.version,
        )
        truth.parts[key] = part
        for phase in self._phases[part.home]:
            found = [gradient for gradient in part.gradients if gradient.phase == phase]
            self._check_sum(truth, part.version, found)

    def _check_sum(self, truth: Truth, version: Version, gradients: list[Gradient]) -> None:
        count = self._setup.layout.num_intervals
        if truth.exact is not None and version > truth.exact.version:
            epoch = truth.exact.epoch + version - truth.exact.version - 1
            require(
                [(each.epoch, each.interval) for each in gradients]
                == [(epoch, interval) for interval in range(count)],
                "an exact version holds one gradient of each interval of its epoch, in order",
                f"version {version}",
                [(each.epoch, each.interval) for each in gradients],
            )
        elif version == truth.settled.version:
            require(
                0 < len(gradients) <= self._setup.gradients_an_update,
                "the last version before a limit holds what is left",
                version,
                len(gradients),
            )
        else:
            require(
                len(gradients) == self._setup.gradients_an_update,
                "an update is made of as many gradients as it should",
                version,
                len(gradients),
            )
            if self._setup.update_every is None:
                require(
                    len({each.epoch for each in gradients}) == 1
                    and {each.interval for each in gradients} == set(range(count)),
                    "an update is made of one gradient of each interval, all of one epoch",
                    version,
                    [(each.epoch, each.interval) for each in gradients],
                )
        if version == truth.start.version + 1:
            first = sum(1 for _, phase, _ in truth.added if phase == gradients[0].phase)
            require(
                first >= count, "no version is made before the first epoch's gradients are there", version
            )

    def freed(self, truth: Truth, server: ServerId, version: Version) -> None:
        holders = [key for key, held in truth.pins.items() if key[0] == server and held == version]
        require(not holders, "no version is freed that someone holds", version, holders)
        if self._setup.exact:
            oldest = truth.start.version_of(truth.closed)
            require(version < oldest, "the open epoch's version is held", version, oldest)
            require(version not in truth.evaluating, "an evaluation's version is held", version)

    def held(self, server: ServerId, shelf: Shelf) -> None:
        """What a weight server holds, whenever it has handled something."""
        most = 4 if self._setup.exact else self._setup.policy.max_versions
        if most is None:
            return
        parts = len(self._setup.parts)
        complete = [version for version, found in shelf.parts.items() if len(found) == parts]
        require(
            len(complete) <= most and len(shelf.parts) <= max(most, 2),
            f"no weight server holds more than {most} versions",
            server,
            sorted(shelf.parts),
        )

    def ended(self, truth: Truth, epochs: int, version: Version, shelves: list[Shelf]) -> None:
        """The run has ended and nothing is on its way."""
        for phase in self._setup.training.parameters:
            found = {(epoch, interval) for epoch, each, interval in truth.added if each == phase}
            wanted = {
                (epoch, interval)
                for epoch in range(truth.start.epoch, epochs)
                for interval in range(self._setup.layout.num_intervals)
            }
            require(found == wanted, "every gradient is applied", phase, sorted(found ^ wanted))
        require(not truth.pins, "at the end no one holds a version", truth.pins)
        for server, shelf in enumerate(shelves):
            alone = version in shelf.parts if self._setup.exact else set(shelf.parts) == {version}
            require(shelf.lost or alone, "at the end the last version is held", server, set(shelf.parts))
