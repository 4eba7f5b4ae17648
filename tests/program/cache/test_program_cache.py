"""A model of Siafu's own code is traced once; what is read afterwards is what was traced."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import siafu.program.compile
from siafu import Graph, nn
from siafu.base.storage.files import cache_directory
from siafu.program.cache import program_cache
from siafu.program.cache.program_cache import compiled
from siafu.program.cache.program_form import program_form
from siafu.program.compile import compile_model
from siafu.program.constants import constant_rows, recipes
from siafu.program.program import Program
from siafu.program.record.record import state_of
from tests.toys import toy_graph

MODELS = {"gcn": nn.GCN, "gat": nn.GAT, "sage": nn.GraphSAGE, "gin": nn.GIN}

ROOT = Path(__file__).parents[3]
TRAIN = """
import sys
import siafu
from tests.toys import toy_graph
graph = toy_graph()
model = siafu.nn.GCN(graph.num_features, 8, 2, graph.num_classes, dropout=0.5)
siafu.train(graph, model, epochs=1, out=sys.argv[1], overwrite=True)
print(*(name for name in ("torch._dynamo", "sympy") if name in sys.modules))
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of programs that is empty."""
    monkeypatch.setattr(program_cache, "cache_directory", lambda: tmp_path)
    return tmp_path / "programs"


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> list[torch.nn.Module]:
    """The models that are traced."""
    found = []

    def tracing(model: torch.nn.Module, *given: object, **options: object) -> Program:
        found.append(model)
        return compile_model(model, *given, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(siafu.program.compile, "compile_model", tracing)
    return found


def gcn(graph: Graph, **options: object) -> nn.GCN:
    return nn.GCN(graph.num_features, 8, 2, graph.num_classes, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "training"), [({}, True), ({"norm": "layer_norm", "residual": True}, False)], ids=str
)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.slow
def test_a_program_is_read_as_it_was_traced(
    name: str, options: dict[str, object], training: bool, traced: list[torch.nn.Module]
) -> None:
    graph = toy_graph()
    model = MODELS[name](graph.num_features, 8, 2, graph.num_classes, dropout=0.5, **options)  # type: ignore[arg-type]
    first, second = (compiled(model, graph, training=training, loss_scale=0.125) for _ in range(2))
    assert traced == [model]
    assert json.dumps(program_form(second, model)) == json.dumps(program_form(first, model))
    assert recipes(second.cut) == recipes(first.cut)
    x, weights = nn.features(graph), state_of(model)
    rows = [constant_rows(each.cut, graph, x, weights) for each in (first, second)]
    assert all(torch.equal(*each) for each in zip(*rows, strict=True))


def test_layers_of_a_program_that_is_read_are_those_of_the_model_at_hand() -> None:
    graph = toy_graph()
    compiled(gcn(graph), graph, training=True)
    model = gcn(graph)
    program = compiled(model, graph, training=True)
    assert {site.layer for site in program.cut.recording.sites} == set(model.convs)


@pytest.mark.slow
def test_a_second_start_traces_nothing_and_imports_no_tracer(tmp_path: Path) -> None:
    # Kernels need not be compiled for this: they are those of all tests.
    (tmp_path / "kernels").symlink_to(cache_directory() / "kernels")
    environment = os.environ | {"SIAFU_CACHE": str(tmp_path)}

    def start() -> list[str]:
        command = [sys.executable, "-c", TRAIN, str(tmp_path / "run")]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    assert start() == ["torch._dynamo", "sympy"]
    assert start() == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace('"mm"', '"mul"', 1),
        lambda text: "[]",
        lambda text: json.dumps({"sha256": "0", "program": {}}),
    ],
    ids=["cut short", "changed", "of another kind", "empty"],
)
@pytest.mark.slow
def test_a_damaged_file_is_traced_again_and_replaced(
    damage: object, cache: Path, traced: list[torch.nn.Module]
) -> None:
    graph = toy_graph()
    model = gcn(graph)
    compiled(model, graph, training=True)
    (file,) = cache.iterdir()
    whole = file.read_text()
    file.write_text(damage(whole))  # type: ignore[operator]
    compiled(model, graph, training=True)
    assert len(traced) == 2
    assert file.read_text() == whole


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_is_done_without(cache: Path, traced: list[torch.nn.Module]) -> None:
    cache.write_text("a file where the directory should be")
    graph = toy_graph()
    for _ in range(2):
        compiled(gcn(graph), graph, training=True)
    assert len(traced) == 2


@pytest.mark.slow
def test_code_of_others_is_traced_each_time(cache: Path, traced: list[torch.nn.Module]) -> None:
    class Own(nn.GCN):
        """Code of others."""

    graph = toy_graph()
    model = Own(graph.num_features, 8, 2, graph.num_classes)
    for _ in range(2):
        compiled(model, graph, training=True)
    assert len(traced) == 2
    assert not cache.exists()


def test_old_files_make_room(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_cache, "_MOST_FILES", 3)
    cache.mkdir()
    for number in range(3):
        (cache / f"{number}.json").write_text("{}")
        os.utime(cache / f"{number}.json", (number, number))
    graph = toy_graph()
    compiled(gcn(graph), graph, training=False)
    assert len(list(cache.iterdir())) == 3
    assert not (cache / "0.json").exists()
