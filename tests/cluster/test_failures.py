"""A server that fails leaves its story in the run's logs."""

from pathlib import Path

import pytest

from siafu.base.errors import SiafuError
from tests.cluster.cluster_runs import graph, train_on_crew, weight
from tests.cluster.dooms import Doom

pytestmark = pytest.mark.slow  # starts servers as processes


@pytest.mark.parametrize(
    ("server", "point", "told"),
    [
        (graph(0), "train backward gather", "graph server 0: run ∇G"),
        (weight(0), "Update", "weight server 0: make version 2"),
    ],
)
def test_a_server_that_fails_tells_what_happened_last_and_what_waits(
    tmp_path: Path, server: object, point: str, told: str
) -> None:
    dooms = {(server, 1): Doom(point, 2, error="something broke")}
    with pytest.raises(SiafuError, match="something broke"):
        train_on_crew("gcn", dooms=dooms, log=tmp_path)  # type: ignore[arg-type]
    log = (tmp_path / f"{server.role}-{server.index}.log").read_text()  # type: ignore[attr-defined]
    assert told in log
    assert " waits: " in log
    assert len(log.splitlines()) < 120


@pytest.mark.parametrize(
    ("server", "point", "waits"),
    [
        (graph(1), "GradientArrived", "owes gradients"),
        (graph(0), "RowsArrived", "waits for rows"),
        (weight(1), "WeightsGranted", "asked weight server 1"),
    ],
)
def test_a_run_that_stands_still_says_so_and_what_waits_at_its_servers(
    server: object, point: str, waits: str
) -> None:
    dooms = {(server, 1): Doom(point, 4, skipped=True)}
    with pytest.raises(SiafuError, match="stands still") as raised:
        train_on_crew("gcn", dooms=dooms)  # type: ignore[arg-type]
    assert waits in str(raised.value)


def test_a_run_whose_task_takes_long_does_not_stand_still() -> None:
    dooms = {(graph(0), 1): Doom("train forward gather", 2, seconds=4.0)}
    assert train_on_crew("gcn", dooms=dooms).losses  # type: ignore[arg-type]
