"""Gathers over CSR arrays at the speed of memory, and their adjoints. Knows nothing of graphs or models.

Every gather has two forms: `gather_*` over all rows on every core, and `*_range` over a range of rows in the
calling thread, without the GIL, into a table that others may be filling elsewhere.
"""

from siafu.kernels.attention import (
    Attended,
    Attention,
    attend_adjoint_range,
    attend_range,
    gather_attention,
    gather_attention_adjoint,
)
from siafu.kernels.blocking import Blocks, block_size, split_rows
from siafu.kernels.chunks import equal_chunks, over_rows
from siafu.kernels.emit import LANES, MAX_TILE
from siafu.kernels.maxima import gather_max, gather_max_adjoint, max_adjoint_range, max_range
from siafu.kernels.rows import Table, empty_table, pack, pack_heads, padded
from siafu.kernels.sums import gather_sum, sum_blocks_range, sum_dtype, sum_range

__all__ = [
    "LANES",
    "MAX_TILE",
    "Attended",
    "Attention",
    "Blocks",
    "Table",
    "attend_adjoint_range",
    "attend_range",
    "block_size",
    "empty_table",
    "equal_chunks",
    "gather_attention",
    "gather_attention_adjoint",
    "gather_max",
    "gather_max_adjoint",
    "gather_sum",
    "max_adjoint_range",
    "max_range",
    "over_rows",
    "pack",
    "pack_heads",
    "padded",
    "split_rows",
    "sum_blocks_range",
    "sum_dtype",
    "sum_range",
]
