"""Stand-ins: values of edges without numbers, and PyG's and PyTorch's functions that know them."""
