"""RelationWeights: from a model's parameters to the matrices of types, and back."""

from typing import NamedTuple

import torch

from siafu.nn.gathers.relation_sum import RelationSum, composed
from siafu.server.gathers.local_gather import Weights


class RelationWeights(NamedTuple):
    """The parameters of a gather by type.

    names:  of the model's parameters, in the gather's order; learnt: those that get gradients
    """

    gather: RelationSum
    names: tuple[str, ...]
    learnt: tuple[str, ...]

    def matrices(self, weights: Weights | None) -> torch.Tensor:
        """[types, in, out]."""
        with torch.no_grad():
            return composed(self.gather.matrices, tuple((weights or {})[name] for name in self.names))

    def gradients(self, of_matrices: torch.Tensor, weights: Weights | None) -> dict[str, torch.Tensor]:
        """From those of the matrices, one below the other, to those of what they are composed of."""
        given = [(weights or {})[name].detach().requires_grad_() for name in self.names]
        with torch.enable_grad():
            made = composed(self.gather.matrices, tuple(given))
        found = torch.autograd.grad(made, given, of_matrices.reshape(made.shape))
        by_name = dict(zip(self.names, found, strict=True))
        return {name: by_name[name] for name in self.learnt}
