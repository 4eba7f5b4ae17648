"""VersionPolicy: the limit on live versions of the weights, and what has to wait for it."""

from collections.abc import Iterable
from dataclasses import dataclass

from siafu.base.errors import BadInput

Version = int


@dataclass(frozen=True, slots=True)
class VersionPolicy:
    """When an update may be made, and when an interval may enter an epoch.

    An interval pins the latest version when it enters an epoch, and lets go of it with its last gradient.
    An update makes version `latest + 1`; of the others, those that are pinned stay alive.

    name:         stash, 2bw or flush
    max_versions: how many may be alive after an update, the new one counted; None: any number

    With n versions nobody may still hold one older than the n newest. So two versions (PipeDream-2BW) are
    W(t+1) = W(t) - lr · g(W(t-1)), where the gradient is never further behind, and one version is a flush.
    """

    name: str
    max_versions: int | None

    def may_update(self, latest: Version, pinned: Iterable[Version]) -> bool:
        """Whether version `latest + 1` may be made while the versions in `pinned` are in flight."""
        if self.max_versions is None:
            return True
        oldest_kept = latest + 2 - self.max_versions
        return all(version >= oldest_kept for version in pinned)

    def may_enter(self, update_due: bool) -> bool:
        """Whether an interval may pin the latest version now, given that enough gradients came for an update.

        Where one version is all there is, an entry would put the update off, and the next entry again. Two
        versions need no such stop: entries pin the latest, which stays alive, and the older one runs dry.

        Who is in flight must be able to finish without those that wait here. In an exact epoch, where
        intervals wait for each other's rows, that holds only once all have entered: no update is due before.
        """
        return not (update_due and self.max_versions == 1)


POLICIES = {
    each.name: each
    for each in (VersionPolicy("stash", None), VersionPolicy("2bw", 2), VersionPolicy("flush", 1))
}


def policy(name: str) -> VersionPolicy:
    """A policy by its name."""
    if name not in POLICIES:
        raise BadInput(f"unknown weight policy {name!r}: choose one of {', '.join(POLICIES)}")
    return POLICIES[name]
