"""Embeddings: a vector for every entity and every relation of a knowledge graph, learnt from its triples."""
