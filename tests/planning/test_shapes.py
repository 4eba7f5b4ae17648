"""What is to be trained, as numbers."""

from pathlib import Path

import pytest

import siafu
from siafu.base.errors import BadInput
from siafu.graph.partition import make_partition
from siafu.graph.partition.saved import save_partition
from siafu.graph.stores.fingerprint import fingerprint
from siafu.planning.durations import seconds_in
from siafu.planning.shapes import model_shape, shape_of
from tests.toys import toy_graph


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("15m", 900), ("1h", 3600), ("1h30min", 5400), ("2 d", 172800)],
)
def test_times_are_read_as_people_write_them(text: str, seconds: float) -> None:
    assert seconds_in(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "1h soon", "-5s", "h"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="is not a time"):
        seconds_in(text)


def test_a_graph_that_is_known_by_name_is_not_generated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SIAFU_CACHE", str(tmp_path))
    name, shape = shape_of("friendster")
    assert (name, shape.vertices, shape.features) == ("friendster", 65_600_000, 32)
    assert not any(tmp_path.iterdir())


def test_a_store_gives_its_sizes_and_the_ghosts_of_its_partitions(tmp_path: Path) -> None:
    graph = toy_graph()
    graph.save(tmp_path / "toy")
    save_partition(tmp_path / "toy", make_partition(graph, 3, method="hash"), fingerprint(graph))
    _, shape = shape_of(tmp_path / "toy")
    assert (shape.vertices, shape.edges) == (graph.num_vertices, graph.num_edges)
    assert set(shape.ghosts) == {3}
    assert shape.ghosts_of_server(3) > 0


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(BadInput):
        shape_of("no-such-graph")


def test_a_model_gives_its_own_sizes() -> None:
    shape = model_shape(siafu.nn.GAT(16, 24, 3, 4, heads=4, dropout=0.25))
    assert (shape.name, shape.hidden, shape.layers, shape.heads, shape.dropout) == ("gat", 24, 3, 4, 0.25)


@pytest.mark.parametrize(("model", "hidden"), [("gpt", 64), ("gcn", 0)])
def test_a_model_that_cannot_be_is_refused(model: str, hidden: int) -> None:
    with pytest.raises(BadInput):
        model_shape(model, hidden=hidden)
