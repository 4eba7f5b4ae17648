"""Sources of groups of rows: gathers from disk that collect them hold their rows."""

import math
from weakref import WeakKeyDictionary

from siafu.graph import Graph
from siafu.server.gathers.on_disk.source_counts import SourceCounts, count_sources, count_targets
from siafu.server.memory.disk_share import equal_ranges
from siafu.server.memory.server_part import ServerPart

_counted: WeakKeyDictionary[Graph, dict[tuple[int, bool], SourceCounts]] = WeakKeyDictionary()


def group_counts(graph: Graph, part: ServerPart, groups: int, *, back: bool) -> SourceCounts:
    """The most sources and edges that one of so many groups of a server's rows has; back: of gradients.

    Counted in one walk over the edges where the server has all of them. A part of a graph may need every row that it has.
    """
    columns, edges = (part.rows.backward, part.out_edges) if back else (part.rows.forward, part.edges)
    if not part.alone:
        return SourceCounts(columns, edges)
    if graph.indices.strides[0] == 0:  # a graph that is only planned: edges lead anywhere
        share = 1 - math.exp(-edges / max(1, columns) / groups)
        return SourceCounts(-(-columns // groups) + round(share * columns), -(-edges // groups))
    back = back and not graph.is_symmetric
    known = _counted.setdefault(graph, {})
    if (groups, back) not in known:
        ranges = equal_ranges(part.vertices, groups)
        if back:
            known[groups, back] = count_targets(graph.indptr, graph.indices, ranges)
        else:
            known[groups, back] = count_sources(graph.indptr, graph.indices, None, ranges, columns)
    return known[groups, back]
