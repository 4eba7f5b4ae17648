"""Layers, one file each, and what stands between them."""
