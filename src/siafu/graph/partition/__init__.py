"""Partitions: the assignment of vertices to servers, their ghosts, and intervals within a server."""

from siafu.graph.partition.ghosts import ByServer, GhostTable, LocalGraph, edge_numbers, local_graph
from siafu.graph.partition.intervals import auto_interval_count, gather_parts, intervals
from siafu.graph.partition.memory import ServerMemory, memory_before, memory_per_server
from siafu.graph.partition.methods import METHODS, check_parts, chosen_method, make_partition
from siafu.graph.partition.partition import Partition
from siafu.graph.partition.quality import PartitionQuality, measure
from siafu.graph.partition.reads import Reads, interval_reads
from siafu.graph.partition.saved import partition_path, read_partition, save_partition

__all__ = [
    "METHODS",
    "ByServer",
    "GhostTable",
    "LocalGraph",
    "Partition",
    "PartitionQuality",
    "Reads",
    "ServerMemory",
    "auto_interval_count",
    "check_parts",
    "chosen_method",
    "edge_numbers",
    "gather_parts",
    "interval_reads",
    "intervals",
    "local_graph",
    "make_partition",
    "measure",
    "memory_before",
    "memory_per_server",
    "partition_path",
    "read_partition",
    "save_partition",
]
