"""The page on stability names what is there: names, keys, versions of files."""

import re
from importlib import import_module
from pathlib import Path

import pytest

import siafu
from siafu.cost import price_file
from siafu.graph.partition import saved
from siafu.graph.stores import store
from siafu.planning import calibration
from siafu.report.files import metrics, run_directory, trace_file

_PAGE = (Path(__file__).resolve().parents[2] / "docs" / "stability.md").read_text()
_VERSIONS = {
    "a store, `graph.json`": store.VERSION,
    "a partition, `partition.json`": saved.VERSION,
    "a run, `config.json`": run_directory.VERSION,
    "`metrics.jsonl`": metrics.VERSION,
    "`trace.json`": trace_file.VERSION,
    "a price file": price_file.VERSION,
    "a calibration": calibration.VERSION,
}


def _rows(heading: str) -> list[list[str]]:
    section = _PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    return [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")][2:]


@pytest.mark.parametrize("row", _rows("Names in Python"), ids=lambda row: row[0])
def test_the_names_of_a_module_are_those_it_exports(row: list[str]) -> None:
    module, names = row
    assert re.findall(r"`(\w+)`", names) == import_module(module.strip("`")).__all__


def test_the_versions_of_files_are_those_that_are_written() -> None:
    assert {row[0]: int(row[1].split()[0]) for row in _rows("Files")} == _VERSIONS


def test_a_summary_has_the_keys_that_are_promised() -> None:
    graph = siafu.Graph.from_edges(
        [0, 1, 2], [1, 2, 0], x=[[1.0], [0.0], [1.0]], y=[0, 1, 0], train=[0, 1], val=[2]
    )
    summary = siafu.train(graph, siafu.nn.GCN(1, 2, 1, 2), epochs=1).summary()
    keys = re.findall(r"^ {4}([a-z_ ]+)$", _PAGE, re.MULTILINE)
    promised = [key for line in keys for key in line.split()]
    assert len(promised) > 20
    assert set(promised) <= set(summary)
    assert {"invocations", "relaunched", "duplicates_dropped", "billed_gb_seconds"} <= set(summary["lambda"])
