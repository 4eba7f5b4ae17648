"""`siafu train --config`: options from a file, and runs trained again."""

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from siafu.base.option import options_of
from siafu.cli.config_file import read_config
from siafu.cli.train import Train
from siafu.nn import GNN, MODELS
from siafu.training.recipe import Recipe
from siafu.training.train import train
from tests.cli.command import Siafu
from tests.toys import toy_graph


def config_of(run: str) -> dict[str, Any]:
    """What a run was asked for."""
    found: dict[str, Any] = json.loads(Path(run, "config.json").read_text())
    return {key: found[key] for key in ("dataset", "model", "training")}


@pytest.mark.slow
def test_a_file_gives_options_and_the_command_line_wins(siafu: Siafu, store: Path) -> None:
    Path("run.toml").write_text(
        f'dataset = "{store}"\nmodel = "sage"\naggr = "max"\nresidual = true\nhidden = 4\nepochs = 2\nlr = 1\n'
        'servers = 2\npartition = "hash"\nout = "run"\ntrace = "off"\n'
    )
    assert siafu("train", config="run.toml", epochs=3, hidden=5).code == 0
    asked = config_of("run")
    model = {"aggr": "max", "hidden_channels": 5, "residual": True}
    training = {"epochs": 3, "lr": 1.0, "servers": 2, "partition": "hash"}
    assert model.items() <= asked["model"]["config"].items()
    assert training.items() <= asked["training"].items()
    assert not Path("run/trace.json").exists()


def test_options_may_be_json_too(siafu: Siafu, store: Path) -> None:
    Path("mine.json").write_text(json.dumps({"epochs": 1, "seed": 7, "patience": None, "out": "run"}))
    assert siafu("train", store, config="mine.json", quiet=True).code == 0
    assert config_of("run")["training"]["seed"] == 7


@pytest.mark.parametrize(
    "asked",
    [
        {
            "mode": "sync",
            "model": "gat",
            "hidden": 8,
            "heads": 2,
            "normalize_features": True,
            "decay": "first",
        },
        {"mode": "pipe", "model": "gcn", "hidden": 4, "servers": 2, "intervals": 3, "seed": 5, "act": "elu"},
    ],
)
@pytest.mark.slow
def test_the_config_of_a_run_trains_it_again_to_the_same_bits(
    siafu: Siafu, store: Path, asked: dict[str, Any]
) -> None:
    assert siafu("train", store, epochs=4, out="run", **asked).code == 0
    assert siafu("train", config="run/config.json", out="again").code == 0
    assert config_of("again") == config_of("run")
    ours, theirs = (load_file(f"{run}/model.safetensors") for run in ("again", "run"))
    assert ours.keys() == theirs.keys()
    assert all(ours[name].equal(theirs[name]) for name in theirs)


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_asked_for_again_as_it_was(name: str) -> None:
    graph = toy_graph()
    first = Recipe(model=name, layers=3, norm="layer_norm").build(graph, seed=0)
    assert isinstance(first, GNN)
    again = Recipe(**Recipe.arguments_of(name, first.config())).build(graph, seed=0)
    assert isinstance(again, MODELS[name])
    assert again.config() == first.config()


def test_every_option_of_the_command_can_stand_in_a_file(tmp_path: Path) -> None:
    given = {name: each.default for name, each in options_of(Train).items() if not each.argument}
    (tmp_path / "all.json").write_text(json.dumps(given))
    assert read_config(tmp_path / "all.json", Train) == {
        name: value for name, value in given.items() if value is not None
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("epoch = 3", "bad.toml: there is no option epoch: did you mean epochs?"),
        ("[training]\nepochs = 3", "bad.toml: there is no option training"),
        ('config = "other.toml"', "bad.toml: there is no option config"),
        ('epochs = "many"', "bad.toml: epochs is many: give a whole number from 1 up"),
        ("epochs = true", "bad.toml: epochs is True: give a whole number from 1 up"),
        ("epochs = 2.5", "bad.toml: epochs is 2.5: give a whole number from 1 up"),
        ("epochs = 0", "bad.toml: epochs is 0: give a whole number from 1 up"),
        ("lr = nan", "bad.toml: lr is nan: give a learning rate above 0"),
        ("lr = [1]", "bad.toml: lr is [1]: give a number"),
        ("quiet = 1", "bad.toml: quiet is 1: give true or false"),
        ("out = 1", "bad.toml: out is 1: give a path"),
        ('mode = "fast"', "bad.toml: unknown mode 'fast': choose one of sync, pipe, async"),
        ('trace = "some"', "bad.toml: trace is 'some': choose one of off, sampled, full"),
        ('lambda_count = "few"', "bad.toml: lambda_count is 'few': give a whole number from 1 up, or auto"),
        ("staleness = 1", "staleness is for mode async, and mode is pipe"),
        ('act = "step"', "act is 'step'"),
        ("epochs =", "bad.toml is not readable TOML (Invalid value (at "),
        ("a = " + "[" * 9999, "bad.toml is not readable TOML"),
        ("#" * 2**21, "bad.toml is not readable TOML (it has more than 1,048,576 bytes)"),
    ],
)
def test_a_bad_file_is_one_clear_line(siafu: Siafu, store: Path, text: str, said: str) -> None:
    Path("bad.toml").write_text(text)
    refused = siafu.refused("train", store, config="bad.toml")
    assert said in refused
    assert "bad.toml" in refused
    assert not Path("runs").exists()


def test_a_file_that_is_none_is_one_clear_line(siafu: Siafu, store: Path) -> None:
    Path("list.json").write_text("[1]")
    assert "nowhere.toml" in siafu.refused("train", store, config="nowhere.toml")
    assert "list.json is not readable JSON" in siafu.refused("train", store, config="list.json")


def test_no_dataset_in_the_file_or_on_the_command_line_is_one_clear_line(siafu: Siafu) -> None:
    Path("run.toml").write_text("epochs = 1")
    assert "name a dataset, such as demo" in siafu.refused("train", config="run.toml")


def test_a_damaged_config_of_a_run_is_refused(siafu: Siafu, store: Path) -> None:
    siafu("train", store, epochs=1, out="run")
    path = Path("run/config.json")
    path.write_text(path.read_text().replace('"lr": 0.01', '"lr": 0.02'))
    assert "run/config.json is corrupted" in siafu.refused("train", config=path)


@pytest.mark.parametrize(("own", "said"), [(False, "model has bias"), (True, "is of your own making")])
@pytest.mark.slow
def test_a_model_that_no_options_ask_for_is_refused(siafu: Siafu, store: Path, own: bool, said: str) -> None:
    class Mine(MODELS["gcn"]):  # type: ignore[misc]
        pass

    graph = toy_graph()
    model = Mine(8, 4, 2, 3) if own else MODELS["gcn"](8, 4, 2, 3, bias=False)
    train(graph, model, epochs=1, out="run", dataset=str(store))
    refused = siafu.refused("train", config="run/config.json")
    assert "run/config.json: " in refused
    assert said in refused
