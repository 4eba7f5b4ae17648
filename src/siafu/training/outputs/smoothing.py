"""Label propagation, and Correct and Smooth: known labels spread along the edges, without a parameter to learn.

Zhu and Ghahramani 2002; Huang et al. 2021, "Combining Label Propagation and Simple Models Out-performs Graph Neural Networks". As in
PyG's `LabelPropagation` and `CorrectAndSmooth`, with Siafu's gathers.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.graph.foreign import graph_of
from siafu.nn.gathers.gather import GcnSum

if TYPE_CHECKING:
    from siafu.training.run import Run

_MOST_SCALE = 1000.0  # PyG's: a vertex that hardly any error reaches is not corrected


def label_propagation(graph: Graph, *, layers: int = 50, alpha: float = 0.9, rows: Any = None) -> Tensor:
    """[V, C]: labels of some vertices, spread along the edges: out ← alpha · A out + (1 - alpha) · labels, `layers` times.

    A has the weights of a GCN without self-loops.

    rows: vertices whose labels are known, by number or by a mask; None: the training rows
    """
    graph = graph_of(graph, "label_propagation")
    labels, known = _labels(graph), _known(graph, rows)
    start = torch.zeros_like(labels)
    start[known] = labels[known]
    return _propagated(graph, start, layers, alpha, lambda out: out.clamp_(0.0, 1.0))


def correct_and_smooth(
    run: "Run | Tensor",
    graph: Graph,
    *,
    correction_layers: int = 50,
    correction_alpha: float = 0.9,
    smoothing_layers: int = 50,
    smoothing_alpha: float = 0.8,
    autoscale: bool = True,
    scale: float = 1.0,
    rows: Any = None,
) -> Tensor:
    """[V, C]: predictions, corrected by the errors on known rows and smoothed with their labels.

    run:       a run, or [V, C] probabilities of classes
    autoscale: scale the spread errors to the mean error on the known rows; else by `scale`
    rows:      vertices whose labels are known, by number or by a mask; None: the training rows
    """
    graph = graph_of(graph, "correct_and_smooth")
    soft = run if isinstance(run, Tensor) else run.probabilities(graph)
    labels, known = _labels(graph), _known(graph, rows)
    if soft.shape != labels.shape:
        raise BadInput(
            f"the probabilities have shape {list(soft.shape)}: give a row for each of the {graph.num_vertices} vertices, with a "
            f"column for each of the {graph.num_classes} classes"
        )
    labels = labels.to(soft.dtype)
    corrected = _corrected(graph, soft, labels, known, correction_layers, correction_alpha, scale, autoscale)
    corrected[known] = labels[known]
    return _propagated(graph, corrected, smoothing_layers, smoothing_alpha, lambda out: out.clamp_(0.0, 1.0))


def _corrected(
    graph: Graph,
    soft: Tensor,
    labels: Tensor,
    known: Tensor,
    layers: int,
    alpha: float,
    scale: float,
    autoscale: bool,
) -> Tensor:
    error = torch.zeros_like(soft)
    error[known] = labels[known] - soft[known]
    if not autoscale:

        def fix(out: Tensor) -> Tensor:
            out[known] = error[known]
            return out

        return soft + scale * _propagated(graph, error, layers, alpha, fix)
    spread = _propagated(graph, error, layers, alpha, lambda out: out.clamp_(-1.0, 1.0))
    mean = error[known].abs().sum() / len(known)
    factor = mean / spread.abs().sum(dim=1, keepdim=True)
    factor[factor.isinf() | (factor > _MOST_SCALE)] = 1.0
    return soft + factor * spread


@torch.no_grad()
def _propagated(
    graph: Graph, start: Tensor, layers: int, alpha: float, then: Callable[[Tensor], Tensor]
) -> Tensor:
    """layers: how often rows go along the edges; then: what is done with them each time."""
    if layers < 0 or not 0 <= alpha <= 1:
        raise BadInput(
            f"{layers} layers with alpha {alpha}: give a number of layers from 0 up, and a share from 0 to 1"
        )
    gather, rest, out = GcnSum(self_loops=False), (1 - alpha) * start, start
    for _ in range(layers):
        out = then(gather(graph, out).mul_(alpha).add_(rest))
    return out


def _labels(graph: Graph) -> Tensor:
    """[V, C] zeros and ones."""
    if graph.y is None or graph.has_quantities:
        raise BadInput(f"graph {graph.name!r} has no labels: give it y")
    y = torch.from_numpy(graph.y)
    return (F.one_hot(y.clamp(min=0), graph.num_classes) if y.ndim == 1 else y).float()


def _known(graph: Graph, rows: Any) -> Tensor:
    given = graph.train if rows is None else rows
    if given is None:
        raise BadInput(f"graph {graph.name!r} has no training split: give the rows whose labels are known")
    known = torch.as_tensor(given)
    if known.dtype == torch.bool and known.shape == (graph.num_vertices,):
        known = known.nonzero().squeeze(1)
    valid = known.ndim == 1 and len(known) > 0 and known.dtype in (torch.int32, torch.int64)
    if not valid or int(known.min()) < 0 or int(known.max()) >= graph.num_vertices:
        raise BadInput("rows are no vertices of the graph: give their numbers, or a mask of all vertices")
    return known.long()
