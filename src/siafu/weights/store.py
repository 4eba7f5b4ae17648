"""WeightStore: the tensors of one weight server: versions of the weights, and gradients on their way into one."""

from collections.abc import Iterable

import torch
from torch import Tensor

from siafu.errors import SiafuError
from siafu.weights.ledger import Epoch, Interval, Ledger, Phase
from siafu.weights.optimizer import Weights
from siafu.weights.policy import Version
from siafu.weights.sums import GradientSum


class MissingVersion(SiafuError):
    """A version of the weights was asked for that is not held: it was freed too early, or never came."""


class WeightStore:
    """Versions, each put once and never changed, and the sum of the gradients that came since the last update.

    Which versions to make and to free is decided elsewhere. `get` may be called from any thread, the rest from
    one at a time.

    versions_peak:     the most versions ever held
    duplicates:        gradients that came again, and were refused
    gradients_pending: how many contributions are in the sum that `take_gradients` would give
    gradients_applied: how many were taken before
    """

    def __init__(self, gradients: GradientSum, *, first_epoch: Epoch = 0) -> None:
        self.versions_peak = 0
        self.duplicates = 0
        self.gradients_pending = 0
        self.gradients_applied = 0
        self._gradients = gradients
        self._ledger = Ledger(first_epoch)
        self._versions: dict[Version, dict[str, Tensor]] = {}
        self._kinds: dict[str, tuple[torch.Size, torch.dtype]] = {}

    @property
    def versions(self) -> list[Version]:
        """Those held, oldest first."""
        return sorted(self._versions)

    @property
    def bytes_held(self) -> int:
        """The memory of all versions and gradients; a tensor that versions share counts once."""
        distinct = {
            tensor.data_ptr(): tensor.nbytes for each in self._versions.values() for tensor in each.values()
        }
        return sum(distinct.values()) + self._gradients.num_bytes

    def put(self, version: Version, weights: Weights, *, freeing: Iterable[Version] = ()) -> None:
        """Hold `weights` as a version, or as a further part of one, in place of the versions in `freeing`.

        No copy is made: nobody may change the tensors from now on.
        """
        held = self._versions.get(version, {})
        for name, weight in weights.items():
            if name in held:
                raise ValueError(f"version {version} has {name!r} already, and a version does not change")
            self._require_kind(name, weight)
        for old in freeing:
            self.free(old)
        self._kinds |= {name: (weight.shape, weight.dtype) for name, weight in weights.items()}
        # A new dictionary: those that `get` gave out stay as they are.
        self._versions[version] = held | {name: weight.detach() for name, weight in weights.items()}
        self.versions_peak = max(self.versions_peak, len(self._versions))

    def get(self, version: Version) -> Weights:
        """The weights of a version, all that came of them."""
        try:
            return self._versions[version]
        except KeyError:
            raise self._missing(version) from None

    def free(self, version: Version) -> None:
        """Let go of a version."""
        if self._versions.pop(version, None) is None:
            raise self._missing(version)

    def add(self, epoch: Epoch, phase: Phase, interval: Interval, gradients: Weights) -> bool:
        """Add a task's gradients to the sum, unless they came before: then they are counted and refused.

        An empty contribution says that this interval has none. No copy is made: nobody may change the tensors.
        """
        for name, gradient in gradients.items():
            if name not in self._kinds:
                raise ValueError(f"a gradient came for {name!r}, which is not among the weights held here")
            self._require_kind(name, gradient)
        if not self._ledger.record(epoch, phase, interval):
            self.duplicates += 1
            return False
        self._gradients.add(epoch, phase, interval, gradients)
        self.gradients_pending += 1
        return True

    def take_gradients(self) -> dict[str, Tensor]:
        """The sum of the gradients since the last time, for an update to be made of it."""
        self.gradients_applied += self.gradients_pending
        self.gradients_pending = 0
        return self._gradients.take()

    def _require_kind(self, name: str, tensor: Tensor) -> None:
        shape, dtype = self._kinds.get(name, (tensor.shape, tensor.dtype))
        if (tensor.shape, tensor.dtype) != (shape, dtype):
            raise ValueError(
                f"{name!r} is {dtype} {list(shape)}, and {tensor.dtype} {list(tensor.shape)} came for it"
            )

    def _missing(self, version: Version) -> MissingVersion:
        held = ", ".join(map(str, self.versions)) or "none"
        return MissingVersion(f"version {version} of the weights is not held here (held: {held})")
