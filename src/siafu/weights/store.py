"""WeightStore: the tensors of one weight server: versions of the weights, sums of gradients, the optimizer's state."""

from collections.abc import Iterable, Mapping


from torch import Tensor

from siafu.errors import SiafuError
from siafu.weights.optimizer import Settings, State, Weights, step
from siafu.weights.policy import Version

Phase = int


class MissingVersion(SiafuError):
    """A version of the weights was asked for that is not held: it was freed too early, or never came."""


class WeightStore:
    """Holds what it is told to hold; which versions to make and to free is decided by `siafu.pipeline`.

    Versions are never changed. A phase's parameters are updated at its home; here they are only kept elsewhere.

    phases: the names of the parameters of each phase; a parameter belongs to one
    fixed:  weights and buffers that are not trained
    """

    def __init__(self, phases: Mapping[Phase, tuple[str, ...]], fixed: Weights, settings: Settings) -> None:
        self.versions_peak = 0
        self.gradients_applied = 0
        self._phases, self._fixed, self._settings = phases, dict(fixed), settings
        self._held: dict[tuple[Phase, Version], dict[str, Tensor]] = {}
        self._whole: dict[Version, dict[str, Tensor]] = {}
        self._sums: dict[tuple[Phase, Version], dict[str, Tensor]] = {}
        self._counts: dict[tuple[Phase, Version], int] = {}
        self._state: dict[Phase, State] = {}

    def restore(self, version: Version, weights: Weights, state: State, homes: Iterable[Phase]) -> None:
        """Hold `version` and nothing else; at the phases in `homes` go on with the optimizer's `state`."""
        self._held = {
            (phase, version): {name: weights[name].detach() for name in names}
            for phase, names in self._phases.items()
        }
        self._whole, self._sums, self._counts = {}, {}, {}
        self._state = {
            phase: {key: each for key, each in state.items() if key.rpartition(".")[0] in self._phases[phase]}
            for phase in homes
        }
        self._count_versions()

    def weights(self, version: Version) -> dict[str, Tensor]:
        """Every weight of a version, by name. The same dictionary each time: it is to be read only."""
        if version not in self._whole:
            whole = dict(self._fixed)
            for phase in self._phases:
                whole |= self.part(phase, version)
            self._whole[version] = whole
        return self._whole[version]

    def part(self, phase: Phase, version: Version) -> dict[str, Tensor]:
        """A phase's parameters in a version."""
        try:
            return self._held[phase, version]
        except KeyError:
            held = ", ".join(str(v) for p, v in sorted(self._held) if p == phase) or "none"
            raise MissingVersion(
                f"version {version} of phase {phase}'s weights is not held here (held: {held})"
            ) from None

    def keep(self, phase: Phase, version: Version, weights: dict[str, Tensor]) -> None:
        """Hold a phase's parameters in a version. Nobody may change the tensors from now on."""
        self._held[phase, version] = weights
        self._count_versions()

    def free(self, phase: Phase, version: Version) -> None:
        """Let go of a phase's parameters in a version."""
        self.part(phase, version)
        del self._held[phase, version]
        self._whole.pop(version, None)

    def accumulate(self, phase: Phase, version: Version, gradients: Weights) -> None:
        """Add a task's gradients to the sum that `version` will be made of."""
        sums = self._sums.setdefault((phase, version), {})
        for name, gradient in gradients.items():
            if name in sums:
                sums[name].add_(gradient)
            else:
                sums[name] = gradient.detach().clone()
        self._counts[phase, version] = self._counts.get((phase, version), 0) + 1

    def update(self, phase: Phase, version: Version) -> None:
        """Make a phase's `version` of the one before and the sum of its gradients."""
        before = self.part(phase, version - 1)
        sums = self._sums.pop((phase, version), {})
        made, self._state[phase] = step(before, sums, self._state.get(phase, {}), self._settings)
        self.gradients_applied += self._counts.pop((phase, version), 0)
        self.keep(phase, version, made)

    def state(self) -> dict[str, Tensor]:
        """The optimizer's state of the phases whose home this is, as a checkpoint holds it."""
        return {key: tensor for state in self._state.values() for key, tensor in state.items()}

    def _count_versions(self) -> None:
        self.versions_peak = max(self.versions_peak, len({version for _, version in self._held}))


