"""Bytes that training triples by a model takes, told before any of it is allocated."""

import math

from siafu.base.hardware.memory import own_bytes, refuse_more_than_budget
from siafu.embedding.disk.partition_buffer import SPAN_BYTES, PartitionLayout
from siafu.embedding.embed_options import EmbedOptions
from siafu.embedding.embedding_memory import shared_bytes
from siafu.graph.triples import Triples
from siafu.options import ALL_EDGES, fanouts_of
from siafu.training.linking.entity_vectors import KINDS, places_ahead
from siafu.training.linking.triple_steps import ENCODED_EDGES
from siafu.training.linking.triple_training import TripleTraining

_FLOAT = 4
_UNEVEN = 1.1  # times as many triples as the mean are in a state's buckets
_SORTED_EDGE = 40  # bytes of an edge while edges are put in order
_DRAWN_EDGE = 64  # bytes of a drawn edge: both orders of a batch's graph, and what making them takes
_ROW_COPIES = 6  # of a layer: what it gathers, its products and their gradients
_SCORES = 6  # arrays of as many numbers as scores of a step


def refuse_more_than_memory(triples: Triples, asked: TripleTraining, layers: int) -> None:
    """Refuse a training that cannot fit."""
    taken = own_bytes()
    refuse_more_than_budget(
        taken + sum(memory_list(triples, asked, layers).values()),
        "training these triples",
        "choose a smaller dim or batch, or "
        + ("keep vectors on disk with " if asked.partitions is None else "more ")
        + "partitions",
        memory=asked.memory,
        taken=taken,
    )


def memory_list(triples: Triples, asked: TripleTraining, layers: int) -> dict[str, int]:
    """Bytes at the peak, by what they are for. Mapped files are not among them: they can be dropped."""
    entities, count = triples.num_entities, len(triples.train)
    table = _FLOAT * asked.dim * entities
    if asked.partitions is None:
        vectors, resident, near = 3 * table, entities, 0  # the best epoch's, too
        encoded = entities
    else:
        assert asked.buffer is not None
        layout = PartitionLayout(entities, asked.dim, asked.partitions, KINDS)
        vectors = layout.buffer_bytes(asked.buffer, places_ahead(asked)) + 2 * min(SPAN_BYTES, table)
        resident = asked.buffer * layout.rows
        share = min(1.0, _UNEVEN * (asked.buffer / asked.partitions) ** 2)
        near = (
            int(share * count) * (2 * 8 + 2 * _SORTED_EDGE) + 8 * count
        )  # its triples, edges, and the places of all
        encoded = min(entities, 2 * ENCODED_EDGES) if layers == 1 else entities
    graph = 8 * entities + 2 * count * (_FLOAT + _SORTED_EDGE)
    trained = {"triples in memory": near, "batches": _step_bytes(asked, resident, layers)}
    rows = _ROW_COPIES * _FLOAT * asked.dim * encoded * max(1, layers)
    ranked = {"evaluation": rows + shared_bytes(triples, EmbedOptions(dim=asked.dim))}
    larger = max(trained, ranked, key=lambda phase: sum(phase.values()))
    return {"vectors": vectors, "graph": graph, **larger}


def _step_bytes(asked: TripleTraining, resident: int, layers: int) -> int:
    """Bytes of a step, as if no entity were drawn twice, and no more than there are."""
    frontier = vertices = min(resident, 2 * asked.batch + asked.negatives)
    edges = 0
    for fanout in fanouts_of(asked.fanout):
        drawn = math.inf if fanout == ALL_EDGES else frontier * fanout
        frontier = int(min(drawn, resident))
        vertices = min(resident, vertices + frontier)
        edges += frontier if drawn == math.inf else int(drawn)
    rows = _FLOAT * asked.dim * vertices * (3 + _ROW_COPIES * layers)
    return rows + _DRAWN_EDGE * edges + _SCORES * _FLOAT * asked.batch * (asked.negatives + 1) + 4 * resident
