"""A server that fails leaves its story in the run's logs."""

from pathlib import Path

import pytest

from siafu.base.errors import SiafuError
from tests.cluster.cluster_runs import graph, train_on_crew, weight
from tests.cluster.dooms import Doom


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
