"""`siafu datasets` and `siafu generate`, as a person calls them."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import siafu
from siafu.cli import main
from siafu.graph import is_store


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIAFU_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SIAFU_DATA", raising=False)
    return tmp_path / "cache"


def _run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Any:
    monkeypatch.setattr(sys, "argv", ["siafu", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


def test_the_table_has_a_line_for_each_dataset(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(monkeypatch, "datasets") == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert {"pubmed", "cora", "citeseer", "demo", "friendster"} <= set(lines)
    assert "19,717" in lines["pubmed"]
    assert "no" in lines["pubmed"].split()


def test_json_says_what_is_here_already(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    siafu.load("demo")
    assert _run(monkeypatch, "datasets", "--json") == 0
    ready = {entry["name"]: entry["ready"] for entry in json.loads(capsys.readouterr().out)}
    assert ready["demo"]
    assert not ready["pubmed"]


def test_a_generated_graph_goes_to_the_cache_under_a_name_that_load_knows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(monkeypatch, "generate", "demo", "--scale", "0.5", "--seed", "3") == 0
    name = capsys.readouterr().out.strip()
    assert name == "demo-x0.5-seed3"
    assert siafu.load(name).num_vertices == 2000


def test_a_generated_graph_goes_where_it_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    store = tmp_path / "here"
    assert _run(monkeypatch, "generate", "demo", "-o", str(store), "--features-dtype", "bf16") == 0
    assert capsys.readouterr().out.strip() == str(store)
    assert is_store(store)
    assert siafu.load(store).x.dtype == "uint16"


@pytest.mark.slow
def test_an_existing_store_is_not_overwritten_unless_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = ("generate", "demo", "-o", str(tmp_path / "here"))
    assert _run(monkeypatch, *arguments) == 0
    assert _run(monkeypatch, *arguments) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert _run(monkeypatch, *arguments, "--overwrite") == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("amzon",), "did you mean amazon"),
        (("demo", "--scale", "0"), "--scale"),
        (("demo", "--features-dtype", "fp16"), "did you mean bf16? There are fp32, bf16"),
        (("demo", "--memory-limit", "lots"), "not a size"),
        (("demo", "--memory-limit", "1MB"), "too small"),
    ],
)
def test_bad_arguments_are_one_line_and_exit_code_2(
    arguments: tuple[str, ...],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    assert _run(monkeypatch, "generate", *arguments, "-o", str(tmp_path / "here")) == 2
    line = capsys.readouterr().err
    assert said in line
    assert line.count("\n") == 1
    assert not (tmp_path / "here").exists()
