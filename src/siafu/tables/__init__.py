"""Tables: rows of one width, in memory or in scratch files, and streams of them that threads of their own read and write."""

from siafu.tables.disk_table import DiskTable
from siafu.tables.disk_traffic import DiskTraffic
from siafu.tables.ghosted_table import GhostedTable
from siafu.tables.made_rows import MadeRows
from siafu.tables.named_tables import ComingRows, NamedTables
from siafu.tables.page_pool import lent_buffer
from siafu.tables.pages import page_buffer
from siafu.tables.partition_reader import PartitionReader
from siafu.tables.row_stream import RowStream
from siafu.tables.row_table import MemoryTable, RowTable
from siafu.tables.scratch_directory import ScratchDirectory
from siafu.tables.shared_groups import SharedGroups
from siafu.tables.target_groups import TargetGroups
from siafu.tables.write_behind import WriteBehind

__all__ = [
    "ComingRows",
    "DiskTable",
    "DiskTraffic",
    "GhostedTable",
    "MadeRows",
    "MemoryTable",
    "NamedTables",
    "PartitionReader",
    "RowStream",
    "RowTable",
    "ScratchDirectory",
    "SharedGroups",
    "TargetGroups",
    "WriteBehind",
    "lent_buffer",
    "page_buffer",
]
