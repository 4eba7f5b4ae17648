"""Imports as tests make them: a text or other input in, a graph out."""

from pathlib import Path
from typing import Any

from siafu.graph import Graph, read_store
from siafu.graph.importing.importer import ImportOptions, import_graph
from siafu.graph.importing.inputs import InputOptions
from siafu.graph.importing.readers.columns import EdgeColumns

_OF_INPUT = set(InputOptions.__dataclass_fields__)
_OF_COLUMNS = {"src", "dst", "weight", "type"}


def imported(source: Path, **options: Any) -> Graph:
    """The graph that `siafu import` makes of `source`; options are those of InputOptions and ImportOptions."""
    target = source.parent / "imported.store"
    columns = EdgeColumns(**{name: value for name, value in options.items() if name in _OF_COLUMNS})
    inputs = {name: value for name, value in options.items() if name in _OF_INPUT - _OF_COLUMNS}
    of_input = InputOptions(columns=columns, **inputs)
    others = {name: value for name, value in options.items() if name not in _OF_INPUT | _OF_COLUMNS}
    import_graph(source, target, ImportOptions(input=of_input, overwrite=True, **others))
    return read_store(target)


def edge_set(graph: Graph) -> list[tuple[Any, Any]]:
    """All edges as (source, destination), by original name, sorted."""
    ids = range(graph.num_vertices) if graph.ids is None else graph.ids.tolist()
    return sorted(
        (ids[int(source)], ids[vertex])
        for vertex in range(graph.num_vertices)
        for source in graph.indices[graph.indptr[vertex] : graph.indptr[vertex + 1]]
    )
