"""Functions of PyG as they are while stand-ins go through a model: for those the ones below, for all else PyG's own."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from siafu.nn.pyg import aggregate as aggregation
from siafu.nn.pyg.expression import MANY, Filled, GcnWeight, Number, Side, StoredFeatures, StoredWeight
from siafu.nn.pyg.session import refusal, session
from siafu.nn.pyg.standing_in.token_functions import refuse_turned
from siafu.nn.pyg.standing_in.values import EdgeToken, EdgeValue, node_of, without_memory

PygFunction = Callable[..., Any]


def gcn_norm(
    edge_index: EdgeToken,
    edge_weight: Any = None,
    num_nodes: Any = None,
    improved: bool = False,
    add_self_loops: bool = True,
    flow: str = "source_to_target",
    dtype: torch.dtype | None = None,
) -> tuple[EdgeToken, EdgeValue]:
    if flow != "source_to_target":
        refuse_turned(f"flow={flow!r}")
    if edge_weight is not None and not isinstance(node_of(edge_weight), StoredWeight):
        return _computed_norm(edge_index, edge_weight, improved, add_self_loops)
    if edge_index.added or (edge_index.removed and session().graph.num_self_loops):
        raise refusal("gcn_norm after a change of self-loops", "leave self-loops to gcn_norm")
    # PyG's own: without weights an added self-loop counts 1, `improved` or not.
    loops = (2.0 if improved and edge_weight is not None else 1.0) if add_self_loops else None
    meta = without_memory(MANY, dtype=session().x.dtype)
    token = EdgeToken(removed=True, added=1, turned=edge_index.turned) if add_self_loops else edge_index
    return token, EdgeValue(GcnWeight(meta, edge_weight is not None, loops))


def _computed_norm(
    edge_index: EdgeToken, weight: Any, improved: bool, with_loops: bool
) -> tuple[EdgeToken, EdgeValue]:
    """Of weights that the model computes: w_ij / √(d_i d_j), d the sums of weights over in-edges."""
    if with_loops:
        edge_index, weight = add_remaining_self_loops(edge_index, weight, 2.0 if improved else 1.0)
    source, target = edge_index
    degrees = aggregation.aggregate(node_of(weight), "sum", target)
    factors = degrees.clamp(min=1e-30).rsqrt() * (degrees > 0)
    found: EdgeValue = factors[source] * weight * factors[target]
    return edge_index, found


def remove_self_loops(edge_index: EdgeToken, edge_attr: Any = None) -> tuple[EdgeToken, Any]:
    if edge_index.added:
        raise refusal("remove_self_loops after add_self_loops", "leave out both")
    return EdgeToken(removed=True, turned=edge_index.turned), edge_attr


def add_self_loops(
    edge_index: EdgeToken, edge_attr: Any = None, fill_value: Any = None, num_nodes: Any = None
) -> tuple[EdgeToken, Any]:
    if edge_index.added:
        raise refusal("add_self_loops twice", "add one self-loop to each vertex")
    token = EdgeToken(edge_index.removed, 1, turned=edge_index.turned)
    if edge_attr is None:
        return token, None
    node = node_of(edge_attr)
    if isinstance(fill_value, str):
        loops = aggregation.aggregate(
            node, fill_value, EdgeToken(edge_index.removed, end=edge_index.sides[1])
        )
    elif isinstance(fill_value, Tensor):
        loops = fill_value.expand(session().rows, *node.shape)
    else:
        value = 1.0 if fill_value is None else float(fill_value)
        loops = session().x.new_full((session().rows, *node.shape), value)
    if isinstance(node, StoredFeatures) and not isinstance(fill_value, Tensor):
        session().loop_features[id(loops)] = loops
    return token, EdgeValue(Filled(node.meta, node, loops))


def add_remaining_self_loops(
    edge_index: EdgeToken, edge_attr: Any = None, fill_value: Any = None, num_nodes: Any = None
) -> tuple[EdgeToken, Any]:
    if (
        edge_attr is not None
        and not isinstance(node_of(edge_attr), Number)
        and session().graph.num_self_loops
    ):
        raise refusal(
            "add_remaining_self_loops with weights of stored self-loops",
            "remove the self-loops from data before",
        )
    return add_self_loops(*remove_self_loops(edge_index, edge_attr), fill_value, num_nodes)


def scatter(src: Any, index: EdgeToken, dim: int = 0, dim_size: Any = None, reduce: str = "sum") -> Tensor:
    if not isinstance(src, EdgeValue):
        raise refusal("scatter of rows that are not of edges", "scatter what `message` gives")
    _refuse_dimension(src, dim)
    return aggregation.aggregate(src.node, reduce, index)


def softmax(
    src: EdgeValue, index: Any = None, ptr: Any = None, num_nodes: Any = None, dim: int = 0
) -> EdgeValue:
    _refuse_dimension(src, dim)
    return aggregation.softmax(src.node, end=_end_of(index))


def _end_of(index: Any) -> Side:
    """The end of the edges that an index names; without one, what `message` normalises over."""
    if not isinstance(index, EdgeToken) or index.end is None:
        return "target"
    if index.end == "source":
        refuse_turned("softmax over a vertex's out-edges")
    return index.end


def degree(index: EdgeToken, num_nodes: Any = None, dtype: torch.dtype | None = None) -> Tensor:
    ones = Number(without_memory(MANY, dtype=session().x.dtype), 1.0)
    found = aggregation.aggregate(ones, "sum", index)
    return found if dtype is None or dtype.is_floating_point else found.to(dtype)


def maybe_num_nodes(edge_index: Any, num_nodes: Any = None) -> Any:
    return session().rows if num_nodes is None else num_nodes


def contains_self_loops(edge_index: EdgeToken) -> bool:
    stored = session().graph.num_self_loops > 0 and not edge_index.removed
    return stored or edge_index.added > 0


def _refuse_dimension(value: EdgeValue, dim: int) -> None:
    if dim not in (value.node.axis, value.node.axis - value.ndim) and not (dim == -2 and value.ndim == 1):
        raise refusal(f"an aggregation along dimension {dim}", "let edges come first in what `message` gives")


def get_laplacian(original: PygFunction) -> PygFunction:
    """PyG's own, which is made of functions that are here; of the symmetric one the greatest weight is known."""

    def with_greatest(
        edge_index: Any, edge_weight: Any = None, normalization: Any = None, *rest: Any, **more: Any
    ) -> Any:
        token, weight = original(edge_index, edge_weight, normalization, *rest, **more)
        stored = session().graph.edge_weight
        if normalization == "sym" and (edge_weight is None or stored is None or stored.min() >= 0):
            weight.greatest = 1.0
        return token, weight

    return with_greatest


def dropout_edge(
    edge_index: EdgeToken, p: float = 0.5, force_undirected: bool = False, training: bool = True
) -> tuple[EdgeToken, EdgeValue]:
    _refuse_dropped("dropout_edge", p, training)
    return edge_index, EdgeValue(Number(without_memory(MANY, dtype=torch.bool), 1.0))


def dropout_adj(
    edge_index: EdgeToken,
    edge_attr: Any = None,
    p: float = 0.5,
    force_undirected: bool = False,
    num_nodes: Any = None,
    training: bool = True,
) -> tuple[EdgeToken, Any]:
    _refuse_dropped("dropout_adj", p, training)
    return edge_index, edge_attr


def _refuse_dropped(name: str, p: float, training: bool) -> None:
    """Edges may be dropped where none is: in evaluations, and with p=0."""
    if p > 0 and training:
        changing(name)()


STAND_INS: dict[str, PygFunction] = {
    each.__name__: each
    for each in (
        gcn_norm,
        remove_self_loops,
        add_self_loops,
        add_remaining_self_loops,
        scatter,
        softmax,
        degree,
        maybe_num_nodes,
        contains_self_loops,
        dropout_edge,
        dropout_adj,
    )
}
WRAPPED: dict[str, Callable[[PygFunction], PygFunction]] = {"get_laplacian": get_laplacian}

CHANGES_GRAPH = (
    "coalesce",
    "dropout_node",
    "dropout_path",
    "k_hop_subgraph",
    "negative_sampling",
    "sort_edge_index",
    "subgraph",
    "to_dense_adj",
    "to_torch_coo_tensor",
    "to_torch_csr_tensor",
    "to_undirected",
)
"""Functions that make another graph: they are refused by name."""


def changing(name: str) -> PygFunction:
    def refused(*args: Any, **kwargs: Any) -> Any:
        raise refusal(
            f"{name} inside forward changes the graph",
            f"apply {name} to data before training, or leave it out",
        )

    return refused


def to_dense_batch(*args: Any, **kwargs: Any) -> Any:
    raise refusal(
        "to_dense_batch, as attention of all vertices to all others takes it",
        "leave out global attention: each vertex sees what its edges bring, and means over all vertices",
    )


WHOLE = (to_dense_batch,)
"""Functions of all vertices at once that are refused whatever they are called with."""

OF_EDGES = frozenset({"gcn_norm", "remove_self_loops", "add_self_loops", "add_remaining_self_loops"})
"""Functions whose first argument must be the edges that forward got."""


def other_edges(name: str) -> PygFunction:
    def refused(edge_index: Any, *args: Any, **kwargs: Any) -> Any:
        raise refusal(
            f"{name} of {type(edge_index).__name__} instead of edge_index",
            "give it the edge_index that forward got; adj_t and other graphs cannot be taken apart",
        )

    return refused
