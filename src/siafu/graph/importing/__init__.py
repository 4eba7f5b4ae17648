"""Graphs out of the files that people have, in bounded memory."""

from siafu.graph.importing.importer import ImportOptions, import_graph

__all__ = ["ImportOptions", "import_graph"]
