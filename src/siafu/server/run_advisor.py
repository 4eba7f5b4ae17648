"""The advisor of a run, with what earlier runs found about its graph."""

import zlib
from pathlib import Path

import numpy as np

from siafu.graph import Graph
from siafu.graph.stores.store import is_store
from siafu.kernels.advice.advisor import Advisor
from siafu.kernels.advice.findings import Findings, findings_in_memory

_SAMPLE = 1 << 12  # edges that tell graphs in memory apart


def advisor_of(graph: Graph, asked: str, epochs: int | None = None) -> Advisor | None:
    """The advisor of a run on a graph as it is walked.

    asked:  on, or off, for which there is none
    epochs: that are asked for; None: nothing is trained
    """
    if asked == "off":
        return None
    order = "" if graph.renumbered is None else f"{graph.renumbered.method} order, "
    if graph.source is not None and is_store(Path(graph.source)):
        return Advisor(Findings.beside(Path(graph.source)), order, epochs)
    step = max(1, graph.num_edges // _SAMPLE)
    sample = zlib.crc32(np.ascontiguousarray(graph.indices[::step]).tobytes())
    return Advisor(findings_in_memory((graph.num_vertices, graph.num_edges, sample)), order, epochs)
