"""OutputsOnly: no objective at all: a model's outputs are wanted, whatever they are for."""

from collections.abc import Mapping

import torch
from torch import Tensor

from siafu.base.errors import SiafuError
from siafu.graph import Graph
from siafu.objective.metric import ACCURACY
from siafu.objective.objective import Objective
from siafu.objective.tally import Tally

ANY_WIDTH = -1
"""Number of outputs where any will do."""


class OutputsOnly(Objective):
    """Takes the outputs of any model, of graphs with labels and without; the target of a vertex is its number.

    kept: [V, …] where the outputs go; None: only to compile a model with
    """

    name = "outputs"
    metric = ACCURACY
    counted = ()

    def __init__(self, kept: Tensor | None = None) -> None:
        self.kept = kept

    def target(self, graph: Graph) -> Tensor:
        return torch.arange(graph.num_vertices)

    def outputs(self, graph: Graph) -> int:
        return ANY_WIDTH

    def tally(self, out: Tensor, y: Tensor) -> Tally:
        """Keep the rows."""
        assert self.kept is not None, "somebody wants the outputs"
        self.kept[y] = out.detach()
        return Tally.nothing(0)

    def encode(self, tallies: Mapping[str, Tally]) -> tuple[float, ...]:
        return ()

    def loss(self, out: Tensor, y: Tensor) -> Tensor:
        raise SiafuError("outputs alone have no loss")

    def count(self, out: Tensor, y: Tensor) -> tuple[float, ...]:
        raise SiafuError("outputs alone are not counted")

    def measure(self, *counts: float) -> float:
        raise SiafuError("outputs alone are not measured")

    def answers(self, out: Tensor) -> Tensor:
        return out
