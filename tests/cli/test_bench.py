"""`siafu bench`: what it measures, against peers that run under another interpreter."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from siafu.base.errors import BadInput, SiafuError
from siafu.bench import handwritten
from siafu.bench.timing import measure_peer
from siafu.cli import app
from siafu.graph import Graph
from siafu.kernels import empty_table, gather_sum, pack
from siafu.planning.calibration import calibration

pytestmark = pytest.mark.slow  # measures


@pytest.fixture
def store(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    graph = Graph.from_edges(
        rng.integers(0, 80, 600),
        rng.integers(0, 80, 600),
        num_vertices=80,
        undirected=True,
        x=rng.standard_normal((80, 10)),
        y=rng.integers(0, 3, 80),
        train=range(40),
    )
    graph.save(tmp_path / "some.store")
    return tmp_path / "some.store"


def last_json(arguments: list[str]) -> dict[str, object]:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    found: dict[str, object] = json.loads(result.stdout.strip().splitlines()[-1])
    return found


def test_the_gather_is_measured_beside_torch(store: Path) -> None:
    found = last_json(["bench", "gather", str(store), "--width", "128", "--repeat", "1", "--json"])
    names = {timing["who"] for timing in found["timings"]}
    assert {"siafu fp32", "siafu bf16", "torch CSR"} <= names
    assert found["bytes_read"] == found["edges"] * (128 * 4 + 4)


def test_an_epoch_is_measured_in_both_precisions(store: Path) -> None:
    found = last_json(["bench", "epoch", str(store), "--model", "gat", "--repeat", "1", "--json"])
    assert [timing["who"] for timing in found["timings"]] == [
        "siafu fp32",
        "siafu bf16",
        "siafu fp32, an interval a thread",
        "siafu fp32, model(graph)",
    ]
    assert {kind["name"] for kind in found["kinds"]} >= {"T0", "G1", "T2(loss)", "∇G1", "∇T0"}
    # With one epoch of tasks this small, a task's time may be counted after the epoch it was of.
    assert all(kind["seconds"] >= 0 for kind in found["kinds"])
    assert sum(kind["seconds"] for kind in found["kinds"]) > 0
    assert found["busy_share"] > 0
    assert all(timing["best"] > 0 for timing in found["timings"])


def test_a_peer_runs_under_its_own_interpreter(store: Path) -> None:
    timing = measure_peer(Path(sys.executable), "PyG", ["pyg", "epoch", str(store), "16", "gcn"], 2)
    assert len(timing.seconds) == 2
    assert timing.peak_rss_bytes > 0


def test_a_peer_that_is_not_there_or_fails_is_one_line(store: Path) -> None:
    with pytest.raises(BadInput, match="no interpreter at"):
        measure_peer(Path("absent"), "DGL", ["dgl", "gather", str(store), "16"], 1)
    with pytest.raises(SiafuError, match="DGL failed"):
        measure_peer(Path(sys.executable), "DGL", ["dgl", "gather", str(store), "16"], 1)


def test_the_c_kernel_gives_what_ours_gives() -> None:
    rng = np.random.default_rng(0)
    graph = Graph.from_edges(rng.integers(0, 50, 900), rng.integers(0, 50, 900), num_vertices=50)
    rows = pack(rng.standard_normal((50, handwritten.COLUMNS)).astype(np.float32), None, np.float32)
    out = empty_table(50, handwritten.COLUMNS, np.float32)
    by_hand = handwritten.c_gather(graph.indptr, graph.indices, rows, out)
    if by_hand is None:
        pytest.skip("no C compiler, or one that does not know this processor's vectors")
    by_hand()
    np.testing.assert_allclose(out, gather_sum(graph.indptr, graph.indices, None, rows), rtol=1e-5, atol=1e-5)


def test_what_cannot_be_measured_is_refused(store: Path, tmp_path: Path) -> None:
    runner = CliRunner()
    refused = runner.invoke(app, ["bench", "epoch", str(store), "--model", "mlp"])
    assert isinstance(refused.exception, BadInput)
    Graph.from_edges([0], [1]).save(tmp_path / "bare.store")
    unlabelled = runner.invoke(app, ["bench", "epoch", str(tmp_path / "bare.store")])
    assert isinstance(unlabelled.exception, BadInput)


@pytest.mark.untraced
def test_the_paper_is_foretold_as_well_as_the_docs_say(tmp_path: Path) -> None:
    found = last_json(["bench", "paper", "--plot", str(tmp_path / "paper.svg"), "--json"])
    listed = [cell for cell in found["cells"] if cell["listed"]]
    assert len(listed) == 35
    assert sum(cell["close"] for cell in listed) >= 0.8 * len(listed)
    assert (tmp_path / "paper.svg").read_text().count("<circle") >= len(found["cells"])


def test_epochs_are_foretold_and_measured(store: Path, tmp_path: Path) -> None:
    calibration()[0].save(tmp_path / "calibration.json")
    arguments = ["--calibration", str(tmp_path / "calibration.json"), "--count", "1", "--latency-ms", "1"]
    found = last_json(["bench", "predict", str(store), *arguments, "--json"])
    far = "1 Lambda, 1 ms, 400 Mbit/s"
    kinds = [(each["model"], each["where"]) for each in found["predictions"]]
    assert kinds == [("gcn", "threads"), ("gcn", far), ("gat", "threads"), ("gat", far)]
    assert all(each["predicted"] > 0 and min(each["measured"]) > 0 for each in found["predictions"])
