"""Samples: mini-batches of vertices with some of their neighbours, and training on them."""
