"""WeightStore: the tensors of one weight server: versions of the weights, sums of gradients, the optimizer's state."""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from torch import Tensor

from siafu.base.errors import SiafuError
from siafu.weights.clipping import Norms, clipped, norms_of
from siafu.weights.gradient_sums import GradientSums
from siafu.weights.optimizer import Settings, State, Weights, step
from siafu.weights.policy import Version


class MissingVersion(SiafuError):
    """A version of the weights was asked for that is not held: it was freed too early, or never came."""


class WeightStore:
    """Tensors of one weight server. `siafu.pipeline` decides which versions to make and to free.

    Versions are never changed. Of each, this server makes the parameters that are at home here; the rest comes from
    the other weight servers.

    home:  names of the parameters that are updated here
    fixed: weights and buffers that are not trained
    order: names of the model's parameters, in the model's order
    rows:  how many each has, where gradients may come for some of them
    """

    def __init__(
        self,
        home: Collection[str],
        fixed: Weights,
        settings: Settings,
        order: Sequence[str] = (),
        rows: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self.gradients_applied, self._rows = 0, rows
        self._places = {name: place for place, name in enumerate(order)}
        self._home, self._fixed, self._settings = frozenset(home), dict(fixed), settings
        self._versions: dict[Version, dict[str, Tensor]] = {}
        self._sums: dict[Version, GradientSums] = {}
        self._counts: dict[Version, int] = {}
        self._state: State = {}

    @property
    def versions(self) -> list[Version]:
        """Versions held, whole or in part, oldest first."""
        return sorted(self._versions)

    def restore(
        self, version: Version, weights: Weights, state: State, held: Mapping[Version, Weights] | None = None
    ) -> None:
        """Hold `version` and nothing else but `held`, and go on with what `state` has of the optimizer's."""
        self._versions = {
            each: self._fixed | {name: tensor.detach() for name, tensor in found.items()}
            for each, found in {**(held or {}), version: weights}.items()
        }
        self._sums, self._counts = {}, {}
        self._state = {key: each for key, each in state.items() if key.rpartition(".")[0] in self._home}

    def weights(self, version: Version) -> dict[str, Tensor]:
        """All that is held of a version, by name. To be read only."""
        try:
            return self._versions[version]
        except KeyError:
            held = ", ".join(map(str, self.versions)) or "none"
            raise MissingVersion(
                f"version {version} of the weights is not held here (held: {held})"
            ) from None

    def part(self, version: Version) -> dict[str, Tensor]:
        """Parameters of a version that were made here."""
        return {name: each for name, each in self.weights(version).items() if name in self._home}

    def keep(self, version: Version, part: Weights) -> None:
        """Hold a further part of a version. Nobody may change the tensors from now on."""
        # A new dictionary: those that `weights` gave out stay as they are.
        self._versions[version] = self._versions.get(version, self._fixed) | dict(part)

    def free(self, version: Version) -> None:
        """Free a version."""
        self.weights(version)
        del self._versions[version]

    def accumulate(self, version: Version, gradients: Weights) -> None:
        """Add a task's gradients to the sum that `version` will be made of. Nobody may change the tensors from now on."""
        self._sums.setdefault(version, GradientSums(self._rows)).add(gradients)
        self._counts[version] = self._counts.get(version, 0) + 1

    def norms(self, version: Version) -> Norms:
        """Norms of the gradients that `version` will be made of here, by the parameters' places in the model."""
        return norms_of(self._learnt(self._sums.get(version, GradientSums()).sums), self._places)

    def update(self, version: Version, rates: tuple[float, ...] = (), norms: Norms = ()) -> None:
        """Make this server's part of `version` from the version before and the sum of the gradients.

        rates: of each group of parameters; (): those of the settings
        norms: of all gradients, which are scaled to the bound that the settings have
        """
        gradients = self._sums.pop(version, GradientSums()).sums
        if self._settings.clip is not None:
            gradients = gradients | clipped(self._learnt(gradients), norms, self._settings.clip)
        made, self._state = step(self.part(version - 1), gradients, self._state, self._settings, rates)
        self.gradients_applied += self._counts.pop(version, 0)
        self.keep(version, made)

    def _learnt(self, gradients: Weights) -> dict[str, Tensor]:
        """Gradients of parameters; statistics that buffers follow are none."""
        return {name: each for name, each in gradients.items() if name not in self._settings.running}

    def state(self) -> dict[str, Tensor]:
        """The optimizer's state of the parameters that are at home here, as a checkpoint holds it."""
        return dict(self._state)
