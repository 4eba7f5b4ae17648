"""Bytes that training embeddings takes, told before any of it is allocated."""

from dataclasses import replace

from siafu.base.threads import thread_count
from siafu.embedding.disk.bucket_orders import read_ahead
from siafu.embedding.disk.partition_buffer import layout_of
from siafu.embedding.embed_options import EmbedOptions
from siafu.embedding.steps.row_updates import moment_count
from siafu.embedding.steps.scores import SCORES
from siafu.graph.triples import Triples

_FLOAT = 4
_SCORES = 16 << 20  # of one thread's evaluation
_ANSWERS = 100  # known triples that answer the questions about one held-out triple, on the whole
_SORTED = 128 << 20  # of triples while they are sorted by bucket, at most
_PARTITIONS = (8, 16, 32, 64)  # more would make more swaps than a smaller buffer saves
_COMPILED = 128 << 20  # what Numba and PyTorch take when they begin


def table_bytes(num_entities: int, options: EmbedOptions) -> int:
    """Bytes of the entities' table with what its optimizer keeps."""
    return num_entities * options.dim * options.number_bytes * (1 + moment_count(options.optimizer))


def needed_bytes(triples: Triples, options: EmbedOptions, *, threads: int | None = None) -> int:
    """Bytes that are allocated at the peak: tables, the best epoch's vectors, batches, known triples, the epoch's order.

    threads: None: this machine's
    """
    score = SCORES[options.score]
    relations = (1 + options.reciprocal) * triples.num_relations * score.relation_width(options.dim)
    tables = table_bytes(triples.num_entities, options)
    tables += relations * _FLOAT * (1 + moment_count(options.optimizer))
    best = options.number_bytes * triples.num_entities * options.dim + _FLOAT * relations
    order = 3 * 8 * min(len(triples.train), 1 << 22)
    lanes = lane_bytes(triples.num_entities, options, threads)
    return tables + best + lanes + order + shared_bytes(triples, options, threads)


def shared_bytes(triples: Triples, options: EmbedOptions, threads: int | None = None) -> int:
    """Bytes that it takes wherever the vectors are: known triples, scores of an evaluation, compiled code."""
    held_out = len(triples.valid) + len(triples.test)
    every = held_out + len(triples.train)
    known = every if options.filter_negatives else min(every, _ANSWERS * held_out)
    queries = 4 * _FLOAT * options.dim * min(held_out, 1 << 18)
    return 2 * 28 * known + queries + (threads or thread_count()) * _SCORES + _COMPILED


def disk_bytes(triples: Triples, options: EmbedOptions, *, threads: int | None = None) -> int:
    """Bytes of memory that are allocated at the peak with the vectors on disk."""
    assert options.partitions is not None
    assert options.buffer is not None
    layout = layout_of(triples.num_entities, options)
    ahead = read_ahead(options.order, options.buffer)
    rows = (options.buffer + ahead) * layout.rows
    state = 3 * 24 * len(triples.train) * options.buffer**2 // options.partitions**2
    parts = layout.buffer_bytes(options.buffer, ahead) + 2 * layout.bytes
    sorting = min(_SORTED, 100 * len(triples.train))
    return (
        parts + lane_bytes(rows, options, threads) + state + sorting + shared_bytes(triples, options, threads)
    )


def on_disk(
    triples: Triples, options: EmbedOptions, budget: int, *, threads: int | None = None
) -> EmbedOptions | None:
    """The options with partitions whose buffer is the largest that fits the budget; None: none does."""
    if options.all_entities:
        return None
    for partitions in _PARTITIONS:
        for buffer in range(partitions // 2, 1, -1):
            chosen = replace(options, partitions=partitions, buffer=buffer)
            if disk_bytes(triples, chosen, threads=threads) <= budget:
                return chosen
    return None


def lane_bytes(num_rows: int, options: EmbedOptions, threads: int | None = None) -> int:
    """Bytes of the batches under way."""
    threads = threads or thread_count()
    lanes = 1 if options.exact else min(threads, options.staleness)
    chunks = -(-options.batch // options.chunk)
    negatives = num_rows if options.all_entities else options.negatives
    rows = 2 * options.batch + 2 * chunks * negatives
    batch = 2 * _FLOAT * options.dim * (rows + 2 * options.batch)
    scores = 2 * _FLOAT * min(options.chunk, options.batch) * negatives
    return lanes * (4 * num_rows + batch) + threads * scores
