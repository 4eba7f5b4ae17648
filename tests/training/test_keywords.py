"""Keywords of siafu.train, which are made of its options; and what it takes to add one."""

import inspect
import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import siafu
from siafu.base.errors import BadInput
from siafu.base.option import options_of
from siafu.cli.train import Train
from siafu.training.keywords import Keywords
from tests.toys import toy_graph

# One more field in `siafu.options`, as if it were written there, and nothing else: in a process of its own.
_ONE_FIELD_MORE = """
import importlib.util, sys
from pathlib import Path
from types import ModuleType

found = importlib.util.find_spec("siafu.options")
source = Path(found.origin).read_text()
field = '    sparkle: int = option(3, "How much it sparkles.", least=1, unset="dull")'
first = "    epochs: int = option("
assert source.count(first) == 1
module = importlib.util.module_from_spec(found)
sys.modules["siafu.options"] = module
exec(source.replace(first, field + chr(10) + first), module.__dict__)
"""
_USED = """
import inspect, json, runpy
from typer.testing import CliRunner
import siafu
from siafu.cli import app

store, docs = sys.argv[1:]
Path("run.toml").write_text("epochs = 1" + chr(10) + "sparkle = 5")
for out, words in {"file": [], "flag": ["--sparkle", "6"]}.items():
    ended = CliRunner().invoke(app, ["train", store, "--config", "run.toml", "--out", out, *words])
    assert ended.exit_code == 0, ended
graph = siafu.load(store)
siafu.train(graph, siafu.nn.GCN(8, 4, 2, 3), epochs=1, out="keyword", sparkle=7)
refused = CliRunner().invoke(app, ["train", store, "--sparkle", "0"])
reference = runpy.run_path(docs)
print(json.dumps({
    "config": [json.loads(Path(run, "config.json").read_text())["training"]["sparkle"] for run in ("file", "flag", "keyword")],
    "signature": str(inspect.signature(siafu.train).parameters["sparkle"]),
    "docstring": "How much it sparkles. None: dull." in siafu.train.__doc__,
    "help": "--sparkle" in CliRunner().invoke(app, ["train", "--help"]).stdout,
    "refused": refused.exit_code,
    "cli page": "| `--sparkle` N | How much it sparkles. | dull |" in reference["cli_page"](),
    "api page": "- `sparkle`: How much it sparkles. None: dull." in reference["api_page"](),
}))
"""


def test_every_option_is_a_keyword_with_its_type_and_default() -> None:
    signature = inspect.signature(siafu.train)
    assert list(signature.parameters)[:2] == ["graph", "model"]
    keywords = dict(list(signature.parameters.items())[2:])
    assert keywords.keys() == {field.name for field in fields(Keywords)} == options_of(Keywords).keys()
    assert {each.kind for each in keywords.values()} == {inspect.Parameter.KEYWORD_ONLY}
    assert str(keywords["patience"]) == "patience: int | None = None"
    assert str(keywords["lr"]) == "lr: float = 0.01"


def test_the_command_line_has_every_keyword_but_functions() -> None:
    assert options_of(Keywords).keys() - options_of(Train).keys() == {"progress", "callbacks"}


def test_every_keyword_is_told_in_the_docstring() -> None:
    for name, each in options_of(Keywords).items():
        assert f"    {name}:" in (siafu.train.__doc__ or "")
        assert each.help.endswith(".")


def test_a_keyword_that_is_none_is_refused_with_one_that_is_like_it() -> None:
    with pytest.raises(BadInput, match="did you mean epochs"):
        siafu.train(toy_graph(), siafu.nn.GCN(8, 4, 2, 3), epoch=3)  # type: ignore[call-arg]


def test_graph_and_model_may_be_named() -> None:
    run = siafu.train(graph=toy_graph(), model=siafu.nn.GCN(8, 4, 2, 3), epochs=1)
    assert len(run.history) == 1


@pytest.mark.slow
def test_a_new_option_is_one_field(tmp_path: Path) -> None:
    toy_graph().save(tmp_path / "toy")
    docs = Path(__file__).resolve().parents[2] / "docs" / "reference.py"
    line = [sys.executable, "-c", _ONE_FIELD_MORE + _USED, str(tmp_path / "toy"), str(docs)]
    ended = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1]) == {
        "config": [5, 6, 7],
        "signature": "sparkle: int = 3",
        "docstring": True,
        "help": True,
        "refused": 2,
        "cli page": True,
        "api page": True,
    }
