"""One batch through a lane, against torch's cross entropy and its optimizer, in fp64."""

import numpy as np
import torch
from torch.nn import functional as F

from siafu.embedding.steps.dropout import drop
from siafu.embedding.steps.lane import EmbeddingLane, TrainedTables, one_by_one
from siafu.embedding.steps.negatives import EveryEntity, generator
from siafu.embedding.steps.row_updates import RowOptimizer
from tests.embedding.knowledge import small_options

_ENTITIES, _RELATIONS, _COUNT = 13, 3, 9


def test_every_entity_as_a_negative_is_the_cross_entropy_over_all_entities_with_dropout() -> None:
    options = small_options(
        dim=8, batch=_COUNT, chunk=4, all_entities=True, dropout=0.3, relation_dropout=0.4
    )
    rng = np.random.default_rng(0)
    entities, relations = rng.standard_normal((_ENTITIES, 8)), rng.standard_normal((2 * _RELATIONS, 8))
    triples = rng.integers(0, (_ENTITIES, _RELATIONS, _ENTITIES), (_COUNT, 3))
    e, r = (torch.tensor(rows, requires_grad=True) for rows in (entities, relations))

    tables = TrainedTables.of(
        RowOptimizer.of("adagrad", entities, options.lr),
        RowOptimizer.of("adagrad", relations, options.lr),
        _RELATIONS,
    )
    lane = EmbeddingLane(options, tables, one_by_one)
    lane.load(triples, EveryEntity(), generator(5))
    loss = lane.compute()
    lane.update()

    batch, (of_entities, of_relations) = lane._batch, lane._keys
    kept, kept_relations = np.ones((len(batch.ids), 8)), np.ones((2 * _COUNT, 8))
    drop(kept, options.dropout, of_entities)
    drop(kept_relations, options.relation_dropout, of_relations)
    rows, turned = e[batch.ids] * torch.tensor(kept), r[batch.relations] * torch.tensor(kept_relations)
    total = torch.zeros((), dtype=torch.float64)
    for side, (known, asked) in enumerate(((0, 2), (2, 0))):
        at, to = (0, _COUNT) if known == 0 else (_COUNT, 0)
        for i in range(_COUNT):
            first = 2 * _COUNT + (side * 3 + i // 4) * _ENTITIES
            query = rows[at + i] * turned[side * _COUNT + i]
            scores = rows[first : first + _ENTITIES] @ query
            right = int(triples[i, asked])
            # The right entity's score has a row, and so a mask, of its own.
            scores = torch.cat([scores[:right], (rows[to + i] @ query)[None], scores[right + 1 :]])
            total = total + F.cross_entropy(scores[None], torch.tensor([right]), reduction="sum")
    torch.optim.Adagrad([e, r], lr=options.lr).zero_grad()
    total.backward()
    torch.optim.Adagrad([e, r], lr=options.lr).step()
    np.testing.assert_allclose(loss, float(total.detach()), rtol=1e-9)
    np.testing.assert_allclose(entities, e.detach().numpy(), rtol=1e-7)
    np.testing.assert_allclose(relations, r.detach().numpy(), rtol=1e-7)
