"""Stores: graphs on disk as memory-mapped arrays, their manifests and checks, here or elsewhere."""
