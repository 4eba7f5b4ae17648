"""TracedEdge: a user's edge function as tensor programs, run with torch on the ends of some edges."""

import torch
from torch import Tensor

from siafu.program.program import GatherStep
from siafu.server.gathers.local_gather import Weights
from siafu.server.named_executor import NamedExecutor


class TracedEdge:
    """What `EdgeGather` calls for messages and their gradients."""

    def __init__(self, step: GatherStep) -> None:
        assert step.edge is not None
        self._weights, self._learnt = step.site.weights, step.learnt
        self._messages = NamedExecutor(step.edge.forward)
        self._gradients = None if step.edge.backward is None else NamedExecutor(step.edge.backward)

    def messages(
        self, source: Tensor, target: Tensor, weights: Weights, features: Tensor | None = None
    ) -> Tensor:
        return self._messages(self._inputs(source, target, weights, features))["output/0"]

    def gradients(
        self,
        source: Tensor,
        target: Tensor,
        weights: Weights,
        of_messages: Tensor,
        features: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        assert self._gradients is not None
        found = self._gradients(self._inputs(source, target, weights, features) | {"gradient/0": of_messages})
        of_weights = {name: found[f"grad/weight/{name}"] for name in self._learnt}
        return found["grad/rows/0"], found["grad/rows/1"], of_weights

    def _inputs(
        self, source: Tensor, target: Tensor, weights: Weights, features: Tensor | None
    ) -> dict[str, Tensor]:
        inputs = {f"weight/{name}": weights[name] for name in self._weights}
        if features is not None:
            inputs["rows/2"] = features
        return inputs | {"rows/0": source, "rows/1": target, "vertices": _NONE, "key": _NONE}


_NONE = torch.zeros(0, dtype=torch.int64)  # an edge has no id, and draws no dropout
