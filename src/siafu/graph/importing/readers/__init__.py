"""One file a format: each gives edges and vertex data in blocks, never the whole input."""
