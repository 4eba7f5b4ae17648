"""Compiled programs on disk, so that a model whose code is known is traced once."""
