"""Which partition a run takes, and which it refuses."""

from pathlib import Path

import numpy as np
import pytest

import siafu
from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.graph.partition import Partition, make_partition, save_partition
from siafu.graph.stores.fingerprint import fingerprint
from siafu.training.placement import choose_partition, describe_partition
from tests.sessions import gcn
from tests.toys import toy_graph


@pytest.fixture
def stored(tmp_path: Path) -> Graph:
    toy_graph().save(tmp_path / "toy")
    return siafu.load(tmp_path / "toy")


def keep(graph: Graph, parts: int, method: str, seed: int = 0) -> Partition:
    """Partition a graph and save that in its store."""
    assert graph.source is not None
    made = make_partition(graph, parts, method=method, seed=seed)
    save_partition(Path(graph.source), made, fingerprint(graph))
    return made


def test_one_server_owns_everything(stored: Graph) -> None:
    keep(stored, 3, "hash")
    assert choose_partition(stored, 1, "auto").owner.max() == 0


def test_a_saved_partition_is_used(stored: Graph) -> None:
    saved = keep(stored, 3, "hash", seed=7)
    found = choose_partition(stored, 3, "auto")
    assert (found.method, found.seed) == ("hash", 7)
    assert np.array_equal(found.owner, saved.owner)


def test_of_several_saved_ones_that_of_the_better_method_is_used(stored: Graph) -> None:
    keep(stored, 2, "hash")
    keep(stored, 2, "contiguous")
    keep(stored, 2, "stream")
    assert choose_partition(stored, 2, "auto").method == "stream"
    assert choose_partition(stored, 2, "hash").method == "hash"


def test_a_store_that_is_partitioned_for_other_numbers_is_refused(stored: Graph) -> None:
    keep(stored, 3, "hash")
    keep(stored, 4, "hash")
    with pytest.raises(BadInput, match=r"is partitioned for 3, 4 servers, not 2.*siafu partition"):
        siafu.train(stored, gcn(stored), servers=2)


def test_a_named_method_partitions_anew(stored: Graph) -> None:
    keep(stored, 3, "hash")
    assert choose_partition(stored, 2, "contiguous").parts == 2


def test_a_saved_partition_of_another_graph_is_refused(stored: Graph, tmp_path: Path) -> None:
    other = toy_graph(seed=5)
    save_partition(tmp_path / "toy", make_partition(other, 2, method="hash"), fingerprint(other))
    with pytest.raises(BadInput, match=r"another graph|other graph|belongs"):
        siafu.train(stored, gcn(stored), servers=2)


def test_a_graph_in_memory_is_partitioned(tmp_path: Path) -> None:
    found = choose_partition(toy_graph(), 3, "auto")
    assert set(found.owner.tolist()) == {0, 1, 2}


def test_a_partition_can_be_given(stored: Graph) -> None:
    mine = Partition("hash", 2, (np.arange(210) % 2).astype(np.uint16))
    run = siafu.train(stored, gcn(stored), epochs=1, servers=2, partition=mine)
    assert run.config["partition"] == describe_partition(mine)


def test_a_given_partition_for_other_servers_is_refused() -> None:
    graph = toy_graph()
    with pytest.raises(BadInput, match="for 3 servers, and servers is 1: pass servers=3"):
        siafu.train(graph, gcn(graph), partition=make_partition(graph, 3, method="hash"))


def test_a_given_partition_of_another_graph_is_refused() -> None:
    graph = toy_graph()
    with pytest.raises(BadInput, match="has 90 vertices, and graph 'toy' 210"):
        siafu.train(graph, gcn(graph), servers=2, partition=make_partition(toy_graph(90), 2, method="hash"))


def test_partitions_are_told_apart_by_their_owners() -> None:
    owner = np.array([0, 1, 1, 0], np.uint16)
    same = describe_partition(Partition("hash", 2, owner.astype(np.int32)))
    assert describe_partition(Partition("hash", 2, owner)) == same
    assert describe_partition(Partition("hash", 2, owner[::-1] ^ 1)) != same
    assert describe_partition(Partition("contiguous", 1, owner * 0)) is None
