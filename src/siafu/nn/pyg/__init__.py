"""PyG's models as they are: their own `forward` runs with stand-ins for `edge_index` and for values of edges."""
