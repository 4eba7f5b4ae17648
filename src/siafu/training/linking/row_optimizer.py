"""SplitOptimizer: Adam, and for learnt rows of vertices an optimizer of torch's that moves those with a gradient alone."""

from collections.abc import Callable

import torch
from torch import nn

from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.nn.vertex_weights import embeddings_of_vertices
from siafu.weights.row_rules import rows_with_gradient

ROW_OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sparse_adam": torch.optim.SparseAdam,
    "adagrad": torch.optim.Adagrad,
}
"""By the names that `row_optimizer` takes."""


class SplitOptimizer:
    """Updates of a model: all weights by Adam, or its learnt rows of vertices by another rule.

    model:  what is called with the graph; its `nn.Embedding` of all vertices and its `LearntRows` are the learnt rows
    whole:  the model, and what is learnt beside it
    rows:   a name of `ROW_OPTIMIZERS`; None: Adam for these too, but for those with `sparse=True`
    fused:  whether Adam is PyTorch's fused form, which is faster and rounds differently
    """

    def __init__(
        self,
        model: nn.Module,
        graph: Graph,
        whole: nn.Module,
        rows: str | None,
        *,
        lr: float,
        weight_decay: float = 0.0,
        fused: bool = False,
    ) -> None:
        names = embeddings_of_vertices(model, graph)
        if rows is not None and not names:
            raise BadInput(
                f"row_optimizer is {rows}, and the model learns no row for each vertex: leave it out, or give it an nn.Embedding of "
                "all vertices or siafu.nn.LearntRows"
            )
        self._rows = [
            each
            for name, each in model.named_parameters()
            if name in names and each.requires_grad and (rows is not None or _is_sparse(model, name))
        ]
        apart = {id(each) for each in self._rows}
        others = [each for each in whole.parameters() if id(each) not in apart]
        self._optimizers: list[torch.optim.Optimizer] = []
        if others:
            self._optimizers.append(torch.optim.Adam(others, lr=lr, weight_decay=weight_decay, fused=fused))
        if self._rows:
            self._optimizers.append(ROW_OPTIMIZERS[rows or "sparse_adam"](self._rows, lr=lr))

    def zero_grad(self) -> None:
        for each in self._optimizers:
            each.zero_grad()

    def step(self) -> None:
        """Move the weights, and of the learnt rows those that have a gradient."""
        for each in self._rows:
            if each.grad is not None and not each.grad.is_sparse:
                found = rows_with_gradient(each.grad)
                each.grad = torch.sparse_coo_tensor(
                    found[None],
                    each.grad.index_select(0, found),
                    each.shape,
                    is_coalesced=True,
                    check_invariants=False,
                )
        for optimizer in self._optimizers:
            optimizer.step()


def _is_sparse(model: nn.Module, name: str) -> bool:
    return bool(getattr(model.get_submodule(name.rpartition(".")[0]), "sparse", False))
