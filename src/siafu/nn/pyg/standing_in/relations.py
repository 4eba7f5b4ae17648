"""PyG's R-GCN as it is while stand-ins go through a model: one gather instead of a loop over the types of edges."""

from typing import Any

from torch import Tensor

from siafu.nn.gathers.relation_sum import Matrices, RelationSum
from siafu.nn.pyg.expression import StoredType
from siafu.nn.pyg.session import refusal, session
from siafu.nn.pyg.standing_in.values import EdgeToken, EdgeValue


def rgcn(layer: Any, x: Any, edge_index: Any, edge_type: Any = None) -> Tensor:
    """`RGCNConv.forward` and `FastRGCNConv.forward`: their loops read every edge once for each type, or make a matrix an edge."""
    if not isinstance(edge_index, EdgeToken) or not edge_index.stored_only:
        raise refusal("edges that forward changed", "give it the edge_index that forward got")
    if not isinstance(edge_type, EdgeValue) or not isinstance(edge_type.node, StoredType):
        raise refusal("types of edges that the model computes", "give it data.edge_type as it is")
    if not isinstance(x, Tensor) or not x.is_floating_point():
        raise refusal(
            "R-GCN without features, or bipartite",
            "give one x for all vertices, such as an embedding of each",
        )
    if layer.aggr not in ("mean", "sum", "add") or layer.flow != "source_to_target":
        raise refusal(
            f"R-GCN with aggr={layer.aggr!r}, flow={layer.flow!r}", "use mean or sum, from source to target"
        )
    form: Matrices = "full"
    if layer.num_bases is not None:
        form = "bases"
    elif layer.num_blocks is not None:
        form = "blocks"
    gather = RelationSum(
        relations=layer.num_relations,
        out_channels=layer.out_channels,
        mean=layer.aggr == "mean",
        matrices=form,
    )
    gather.check(session().graph)
    parameters = (layer.weight, layer.comp) if form == "bases" else (layer.weight,)
    out = session().gather(gather, x, parameters=parameters)
    if layer.root is not None:
        out = out + x @ layer.root
    return out if layer.bias is None else out + layer.bias
