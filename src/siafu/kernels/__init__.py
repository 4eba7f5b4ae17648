"""Gathers over CSR arrays at the speed of memory, and their adjoints. Knows nothing of graphs or models.

Every gather has two forms: `gather_*` over all rows on every core, and `*_range` over a range of rows in the
calling thread, without the GIL, into a table that others may be filling elsewhere.
"""

from siafu.kernels.blocking import Blocks, block_edges, block_size, far_block_size, near_cache_bytes
from siafu.kernels.bucket_edges import count_buckets, fill_buckets
from siafu.kernels.buckets import (
    HubSum,
    add_bucket,
    finish_sums,
    first_edges,
    maximise_bucket,
    pick_bucket,
    share_out_bucket,
    start_maxima,
    start_sums,
)
from siafu.kernels.chunks import equal_chunks, over_rows, row_at
from siafu.kernels.copying import copy_rows, place_rows, taken_rows
from siafu.kernels.edgewise.edge_machine import (
    EDGE_OPERATIONS,
    GRADIENT,
    MAXIMUM,
    SOURCE,
    TARGET,
    CodeTables,
    EdgeCode,
    run_code,
)
from siafu.kernels.edgewise.messages import (
    add_messages,
    add_to_rows,
    edge_ends,
    greatest_messages,
    rows_within,
    share_out,
)
from siafu.kernels.edgewise.relations import (
    TypedEdges,
    TypeRuns,
    relation_outer_range,
    relation_products_range,
    relation_range,
    relation_weights_range,
    run_counts,
    type_runs,
    type_shares,
    typed_edges,
)
from siafu.kernels.hubs import Hub, HubEdges, cut_hubs, hub_rows, without_hubs
from siafu.kernels.llvm.emit import LANES, MAX_TILE
from siafu.kernels.maxima import (
    gather_max,
    gather_max_adjoint,
    max_adjoint_range,
    max_gradient_range,
    max_range,
)
from siafu.kernels.rows import (
    Table,
    copy_range,
    empty_table,
    is_table,
    pack,
    pack_heads,
    pack_heads_range,
    pack_range,
    padded,
    table_row_bytes,
    window,
    zero_table,
)
from siafu.kernels.softmax.adjoint_buckets import AdjointState, attend_adjoint_bucket
from siafu.kernels.softmax.attention import (
    Attended,
    Attention,
    attend_adjoint_range,
    attend_range,
    gather_attention,
    gather_attention_adjoint,
)
from siafu.kernels.softmax.attention_buckets import (
    AttentionState,
    attend_bucket,
    finish_attention,
)
from siafu.kernels.softmax.attention_rows import (
    attention_gradient_range,
    slot_means_range,
    target_gradient_range,
)
from siafu.kernels.softmax.head_vectors import HEAD_STEP
from siafu.kernels.softmax.pair_adjoints import pair_sources_range, pair_stats_range, pair_targets_range
from siafu.kernels.softmax.pair_terms import EdgeTerms
from siafu.kernels.softmax.pairs import pair_range
from siafu.kernels.sums import (
    gather_sum,
    sum_blocks_range,
    sum_dtype,
    sum_far_blocks_range,
    sum_hub,
    sum_range,
)

__all__ = [
    "EDGE_OPERATIONS",
    "GRADIENT",
    "HEAD_STEP",
    "LANES",
    "MAXIMUM",
    "MAX_TILE",
    "SOURCE",
    "TARGET",
    "AdjointState",
    "Attended",
    "Attention",
    "AttentionState",
    "Blocks",
    "CodeTables",
    "EdgeCode",
    "EdgeTerms",
    "Hub",
    "HubEdges",
    "HubSum",
    "Table",
    "TypeRuns",
    "TypedEdges",
    "add_bucket",
    "add_messages",
    "add_to_rows",
    "attend_adjoint_bucket",
    "attend_adjoint_range",
    "attend_bucket",
    "attend_range",
    "attention_gradient_range",
    "block_edges",
    "block_size",
    "copy_range",
    "copy_rows",
    "count_buckets",
    "cut_hubs",
    "edge_ends",
    "empty_table",
    "equal_chunks",
    "far_block_size",
    "fill_buckets",
    "finish_attention",
    "finish_sums",
    "first_edges",
    "gather_attention",
    "gather_attention_adjoint",
    "gather_max",
    "gather_max_adjoint",
    "gather_sum",
    "greatest_messages",
    "hub_rows",
    "is_table",
    "max_adjoint_range",
    "max_gradient_range",
    "max_range",
    "maximise_bucket",
    "near_cache_bytes",
    "over_rows",
    "pack",
    "pack_heads",
    "pack_heads_range",
    "pack_range",
    "padded",
    "pair_range",
    "pair_sources_range",
    "pair_stats_range",
    "pair_targets_range",
    "pick_bucket",
    "place_rows",
    "relation_outer_range",
    "relation_products_range",
    "relation_range",
    "relation_weights_range",
    "row_at",
    "rows_within",
    "run_code",
    "run_counts",
    "share_out",
    "share_out_bucket",
    "slot_means_range",
    "start_maxima",
    "start_sums",
    "sum_blocks_range",
    "sum_dtype",
    "sum_far_blocks_range",
    "sum_hub",
    "sum_range",
    "table_row_bytes",
    "taken_rows",
    "target_gradient_range",
    "type_runs",
    "type_shares",
    "typed_edges",
    "window",
    "without_hubs",
    "zero_table",
]
