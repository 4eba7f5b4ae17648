from typing import Any

import numpy as np
import pytest

from siafu.base.errors import BadInput
from siafu.embedding.embed_options import EmbedOptions
from siafu.graph.triples import Triples
from siafu.planning.embedding_plan import EmbeddingPlan, plan_embedding
from tests.planning.plans import reference

_TYPES = ("c5n.2xlarge", "c5n.4xlarge", "r5.2xlarge")  # 8, 16 and 8 threads; 21, 42 and 64 GiB


def planned(entities: int = 1_000_000, count: int = 10_000_000, **more: Any) -> EmbeddingPlan:
    rows = np.broadcast_to(np.zeros((1, 3), np.int32), (count, 3))
    triples = Triples(rows, rows[:1000], rows[:1000], entities, 10)
    options = {name: more.pop(name) for name in ("dim", "epochs", "score", "partitions") if name in more}
    return plan_embedding(triples, EmbedOptions(**options), instances=_TYPES, measured=reference(), **more)


def test_time_grows_with_triples_and_width_and_falls_with_cores() -> None:
    seconds = {str(each.rental): each.seconds_per_epoch for each in planned().offers}
    assert seconds["c5n.4xlarge"] == pytest.approx(seconds["c5n.2xlarge"] / 2)
    twice = {str(each.rental): each.seconds_per_epoch for each in planned(count=20_000_000).offers}
    assert twice == {name: pytest.approx(2 * each) for name, each in seconds.items()}
    wide = {str(each.rental): each.seconds_per_epoch for each in planned(dim=400).offers}
    assert all(wide[name] > 2.5 * each for name, each in seconds.items())


def test_vectors_go_to_disk_where_memory_is_too_small() -> None:
    found = {
        str(each.rental): each for each in planned(entities=40_000_000).offers
    }  # 32 GB with state, 16 GB for the best epoch
    assert found["r5.2xlarge"].options.partitions is None
    assert found["r5.2xlarge"].disk_bytes == 0
    small = found["c5n.2xlarge"]
    assert small.options.partitions is not None
    assert small.memory_bytes < 21 * 2**30
    assert small.disk_bytes == 40_000_000 * 100 * 4 * 2
    fast = {str(each.rental): each for each in planned(entities=40_000_000, disk_bytes_s=5e10).offers}
    assert fast["c5n.2xlarge"].seconds_per_epoch < small.seconds_per_epoch
    assert small.disk_bound and not fast["c5n.2xlarge"].disk_bound


def test_a_deadline_takes_the_cheapest_and_a_budget_the_fastest() -> None:
    every = planned().offers
    slowest, dearest = max(each.seconds for each in every), max(each.usd for each in every)
    assert planned(deadline=slowest).chosen.usd == min(each.usd for each in every)
    assert planned(budget=dearest).chosen.seconds == min(each.seconds for each in every)
    with pytest.raises(BadInput, match=r"no machine meets that: the fastest is c5n\.4xlarge"):
        planned(deadline="1s")


def test_what_fits_nowhere_is_refused() -> None:
    with pytest.raises(BadInput, match="fit no machine, on disk neither"):
        planned(entities=2_000_000_000, dim=1000)
