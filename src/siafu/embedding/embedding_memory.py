"""Bytes that training embeddings takes, told before any of it is allocated."""

from dataclasses import replace

from siafu.base.threads import thread_count
from siafu.embedding.disk.bucket_orders import order_sizes, read_ahead
from siafu.embedding.disk.partition_buffer import SPAN_BYTES, layout_of
from siafu.embedding.disk.partitioned_trainer import READ_BYTES
from siafu.embedding.disk.state_batches import SPILL_BYTES, STATE_BYTES
from siafu.embedding.embed_options import EmbedOptions
from siafu.embedding.steps.row_updates import moment_count
from siafu.embedding.steps.scores import SCORES
from siafu.graph.triples import Triples

_FLOAT = 4
_SCORES = 16 << 20  # of one thread's evaluation
_ANSWERS = 100  # known triples that answer the questions about one held-out triple, on the whole
_UNEVEN = (
    1.1  # times as many triples as the mean are in a state's buckets: entities are not named equally often
)
_PARTITIONS = (8, 16, 32, 64)  # buckets of more would be small
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


def disk_list(triples: Triples, options: EmbedOptions, *, threads: int | None = None) -> dict[str, int]:
    """Bytes of memory at the peak with the vectors on disk, by what they are for. Mapped files are not among them: they can be dropped."""
    assert options.partitions is not None
    assert options.buffer is not None
    layout = layout_of(triples.num_entities, options)
    ahead = read_ahead(options.order, options.buffer)
    score = SCORES[options.score]
    relations = (1 + options.reciprocal) * triples.num_relations * score.relation_width(options.dim)
    share = order_sizes(options.order, options.partitions, options.buffer).buckets / options.partitions**2
    state = int(STATE_BYTES * _UNEVEN * share * len(triples.train))
    trained = {"triples of a state": state}
    table = _FLOAT * options.dim * triples.num_entities
    ranked = {"checkpoint": 2 * min(SPAN_BYTES, table)}
    if len(triples.valid) + len(triples.test):
        ranked = {
            "evaluation": shared_bytes(triples, options, threads) - _COMPILED + 2 * min(READ_BYTES, table)
        }
    return {
        "partitions in memory": layout.buffer_bytes(options.buffer, ahead),
        "batches": lane_bytes((options.buffer + ahead) * layout.rows, options, threads),
        "relations": relations * _FLOAT * (1 + moment_count(options.optimizer)),
        **max(trained, ranked, key=lambda phase: sum(phase.values())),
        "compiled code": _COMPILED,
    }


def disk_bytes(triples: Triples, options: EmbedOptions, *, threads: int | None = None) -> int:
    """Bytes of memory that are allocated at the peak with the vectors on disk."""
    # While the files are made the buffer is empty.
    table = _FLOAT * options.dim * triples.num_entities
    making = 2 * min(SPAN_BYTES, table) + min(SPILL_BYTES, 100 * len(triples.train)) + _COMPILED
    return max(making, sum(disk_list(triples, options, threads=threads).values()))


def on_disk(
    triples: Triples, options: EmbedOptions, budget: int, *, threads: int | None = None
) -> EmbedOptions | None:
    """The options with as many partitions as read least, each number with the largest buffer that fits the budget; None: none does."""
    if options.all_entities:
        return None
    found = (_largest_buffer(triples, options, partitions, budget, threads) for partitions in _PARTITIONS)
    return min((each for each in found if each is not None), key=read_share, default=None)


def read_share(options: EmbedOptions) -> float:
    """Tables' sizes that an epoch reads from disk."""
    assert options.partitions is not None
    assert options.buffer is not None
    return order_sizes(options.order, options.partitions, options.buffer).reads / options.partitions


def _largest_buffer(
    triples: Triples, options: EmbedOptions, partitions: int, budget: int, threads: int | None
) -> EmbedOptions | None:
    layout = layout_of(triples.num_entities, replace(options, partitions=partitions))
    for buffer in range(partitions, 1, -1):
        if layout.buffer_bytes(buffer, read_ahead(options.order, buffer)) > budget:
            continue  # at once: the sizes of an order take time
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
