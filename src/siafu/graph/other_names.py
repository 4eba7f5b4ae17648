"""Names that PyG and DGL have for what a graph has: told to who uses them."""

_OURS = {
    "num_nodes": "num_vertices",
    "number_of_nodes": "num_vertices",
    "num_node_features": "num_features",
    "number_of_edges": "num_edges",
    "edge_index": "indptr and indices: the sources of vertex i's in-edges are indices[indptr[i]:indptr[i + 1]]",
    "features": "x",
    "feat": "x",
    "ndata": "x, y, train, val and test",
    "edata": "edge_weight, edge_attr and edge_type",
    "labels": "y",
    "label": "y",
    "train_mask": "train: ids of vertices, no mask",
    "val_mask": "val: ids of vertices, no mask",
    "test_mask": "test: ids of vertices, no mask",
    "valid": "val",
    "edge_weights": "edge_weight",
}


def no_attribute(name: str) -> AttributeError:
    """A graph has nothing of this name."""
    ours = _OURS.get(name)
    return AttributeError(f"a Graph has no {name}" + (f": it has {ours}" if ours else ""))
