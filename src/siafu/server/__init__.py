"""A graph server's side of graph phases: gathers over its own edges and ghosts, a range of rows at a time."""

from siafu.server.edges import Exchange, ServerEdges
from siafu.server.gathers.edgewise.edge_gather import EdgeGather, EdgeProgram
from siafu.server.gathers.local_gather import GatherGradients, LocalGather
from siafu.server.gathers.registry import local_gather, local_messages

__all__ = [
    "EdgeGather",
    "EdgeProgram",
    "Exchange",
    "GatherGradients",
    "LocalGather",
    "ServerEdges",
    "local_gather",
    "local_messages",
]
