"""A graph server's side of graph phases: gathers over its own edges and ghosts, a range of rows at a time."""

from siafu.server.edge_gather import EdgeGather, EdgeProgram
from siafu.server.edges import Exchange, ServerEdges
from siafu.server.gathers import local_gather
from siafu.server.local_gather import Gradients, LocalGather

__all__ = [
    "EdgeGather",
    "EdgeProgram",
    "Exchange",
    "Gradients",
    "LocalGather",
    "ServerEdges",
    "local_gather",
]
