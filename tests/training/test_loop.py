"""The loop bends: schedules, groups of parameters, clipping and callbacks, exactly as a loop in plain PyTorch."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler

import siafu
from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.nn.dropout import counted_dropout
from siafu.training.outputs.hidden_rows import hidden_rows
from siafu.training.pace import EpochEnd
from tests.oracle import evaluate, loss_of, model_input, split_rows
from tests.sessions import StopAt, gcn, losses, same_weights, stopped, timeless
from tests.toys import toy_graph

Groups = Callable[[nn.Module], list[dict[str, Any]]]
LAYOUTS: list[dict[str, Any]] = [
    {"mode": "sync"},
    {"servers": 3, "intervals": 2, "weight_servers": 2, "partition": "hash"},
    {"servers": 2, "intervals": 3, "weight_servers": 3, "weights": "flush", "mode": "sync"},
]


def plainly(
    graph: Graph,
    model: nn.Module,
    make: Callable[[Any], Any] | None,
    *,
    epochs: int,
    groups: Groups | None = None,
    clip: float | None = None,
    optimizer: type[torch.optim.Optimizer] = torch.optim.Adam,
) -> tuple[list[float], list[float]]:
    """Losses and first learning rates of a loop as PyTorch's users write it."""
    model = copy.deepcopy(model)
    x, rows = model_input(graph, False).double(), split_rows(graph)
    one_group = [{"params": list(model.parameters()), "weight_decay": 5e-4}]
    torch_optimizer = optimizer(groups(model) if groups else one_group, lr=0.01)
    scheduler = make(torch_optimizer) if make else None
    losses, rates = [], []
    for epoch in range(epochs):
        model.train()
        torch_optimizer.zero_grad()
        with counted_dropout(0, epoch):
            out = model(graph, x)
        loss = loss_of(out, graph, rows["train"])
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        torch_optimizer.step()
        rates.append(torch_optimizer.param_groups[0]["lr"])
        losses.append(loss.item())
        if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau):
            scheduler.step(evaluate(graph, model, x, rows)["val_loss"])
        elif scheduler is not None:
            scheduler.step()
    return losses, rates


SCHEDULES: dict[str, Callable[[Any], Any]] = {
    "StepLR(step_size=2, gamma=0.5)": lambda o: lr_scheduler.StepLR(o, 2, 0.5),
    "CosineAnnealingLR(T_max=8)": lambda o: lr_scheduler.CosineAnnealingLR(o, 8),
    "OneCycleLR(max_lr=0.1, total_steps=9)": lambda o: lr_scheduler.OneCycleLR(o, 0.1, 9),
    "ReduceLROnPlateau(patience=0, factor=0.3, threshold=0.5)": lambda o: lr_scheduler.ReduceLROnPlateau(
        o, patience=0, factor=0.3, threshold=0.5
    ),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_is_torchs_epoch_by_epoch(name: str) -> None:
    graph = toy_graph()
    model = gcn(graph).double()
    wanted, rates = plainly(graph, model, SCHEDULES[name], epochs=8)
    assert len(set(rates)) > 2
    by_name = siafu.train(graph, copy.deepcopy(model), epochs=8, scheduler=name)
    assert [epoch.lr for epoch in by_name.history] == rates
    assert losses(by_name) == pytest.approx(wanted, rel=1e-9)
    made = siafu.train(graph, copy.deepcopy(model), epochs=8, scheduler=SCHEDULES[name], **LAYOUTS[1])
    assert [epoch.lr for epoch in made.history] == rates
    assert losses(made) == pytest.approx(wanted, rel=1e-9)


def test_a_chain_of_schedules_is_torchs() -> None:
    def warm_up(optimizer: Any) -> Any:
        first = lr_scheduler.LinearLR(optimizer, 0.1, total_iters=3)
        return lr_scheduler.SequentialLR(
            optimizer, [first, lr_scheduler.ExponentialLR(optimizer, 0.8)], milestones=[3]
        )

    graph = toy_graph()
    model = gcn(graph).double()
    wanted, rates = plainly(graph, model, warm_up, epochs=7)
    run = siafu.train(graph, model, epochs=7, scheduler=warm_up)
    assert [epoch.lr for epoch in run.history] == rates
    assert losses(run) == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_clipping_and_groups_are_torchs_on_any_layout(layout: dict[str, Any]) -> None:
    def groups(model: nn.Module) -> list[dict[str, Any]]:
        named = dict(model.named_parameters())
        first = [each for name, each in named.items() if name.startswith("convs.0")]
        bias = [each for name, each in named.items() if name == "convs.1.bias"]
        rest = [each for name, each in named.items() if name == "convs.1.lin.weight"]
        assert len(first) + len(bias) + len(rest) == len(named)
        return [
            {"params": first, "lr": 0.05, "weight_decay": 5e-4},
            {"params": bias, "lr": 0.01, "weight_decay": 0.0},
            {"params": rest, "lr": 0.01, "weight_decay": 5e-4},
        ]

    graph = toy_graph()
    model = gcn(graph).double()
    wanted, _ = plainly(graph, model, None, epochs=6, groups=groups, clip=0.05)
    unclipped, _ = plainly(graph, model, None, epochs=6, groups=groups)
    assert wanted != unclipped
    asked = {"convs.0": {"lr": 0.05}, "*.1.bias": {"weight_decay": 0.0}}
    run = siafu.train(graph, model, epochs=6, groups=asked, clip=0.05, **layout)
    assert losses(run) == pytest.approx(wanted, rel=1e-9)


def test_clipping_has_torchs_bits_in_one_process() -> None:
    gradients = {"a": torch.randn(7, 3), "b": torch.randn(5)}
    from siafu.weights.clipping import clipped, norms_of

    parameters = [nn.Parameter(torch.zeros_like(each)) for each in gradients.values()]
    for parameter, gradient in zip(parameters, gradients.values(), strict=True):
        parameter.grad = gradient.clone()
    nn.utils.clip_grad_norm_(parameters, 0.3)
    found = clipped(gradients, norms_of(gradients, {"a": 0, "b": 1}), 0.3)
    wanted: list[Tensor] = [each.grad for each in parameters if each.grad is not None]
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(found.values(), wanted, strict=True))


def test_sync_and_pipe_are_equal_bit_for_bit_with_all_of_it() -> None:
    graph = toy_graph()
    asked: dict[str, Any] = {"scheduler": "CosineAnnealingLR(10)", "clip": 0.1, "groups": "convs.0: lr=0.1"}
    runs = [
        siafu.train(graph, gcn(graph), epochs=6, intervals=3, mode=mode, **asked) for mode in ("sync", "pipe")
    ]
    assert timeless(runs[0].history) == timeless(runs[1].history)
    assert same_weights(runs[0].model, runs[1].model)


class Halving:
    """Halves the learning rate after every second epoch."""

    def __call__(self, end: EpochEnd) -> None:
        assert end.history[-1] is end.metrics
        if end.metrics.epoch % 2 == 0:
            end.lr /= 2


@pytest.mark.parametrize(
    "asked",
    [{"callbacks": [Halving()]}, {"scheduler": "ReduceLROnPlateau(patience=1, threshold=0.5)"}],
    ids=["callback", "plateau"],
)
def test_a_stopped_run_goes_on_bit_for_bit(tmp_path: Path, asked: dict[str, Any]) -> None:
    graph = toy_graph()
    more: dict[str, Any] = asked | {"clip": 0.1, "groups": "convs.0: lr=0.05"}
    stopped(graph, gcn(graph), tmp_path / "run", StopAt(5), **more)
    straight = siafu.train(graph, gcn(graph), epochs=14, **more)
    resumed = siafu.train(graph, gcn(graph), epochs=14, out=tmp_path / "run", resume=True, **more)
    assert timeless(resumed.history) == timeless(straight.history)
    assert [each.lr for each in resumed.history] == [each.lr for each in straight.history]
    assert len({each.lr for each in straight.history}) > 1
    assert same_weights(resumed.model, straight.model)


def test_a_static_schedule_goes_on_where_it_was(tmp_path: Path) -> None:
    graph = toy_graph()
    asked = {"scheduler": "CosineAnnealingLR(12)"}
    siafu.train(graph, gcn(graph), epochs=5, out=tmp_path / "run", **asked)
    resumed = siafu.train(graph, gcn(graph), epochs=12, out=tmp_path / "run", resume=True, **asked)
    straight = siafu.train(graph, gcn(graph), epochs=12, **asked)
    assert timeless(resumed.history) == timeless(straight.history)
    with pytest.raises(BadInput, match=r"training\.scheduler was CosineAnnealingLR"):
        siafu.train(graph, gcn(graph), epochs=13, out=tmp_path / "run", resume=True, scheduler="StepLR(3)")


@pytest.mark.parametrize("layout", [{}, {"servers": 2, "intervals": 2, "mode": "sync"}], ids=str)
def test_a_callback_stops_a_run_that_then_has_ended_well(tmp_path: Path, layout: dict[str, Any]) -> None:
    graph = toy_graph()
    seen = []

    def stop(end: EpochEnd) -> None:
        seen.append(end.metrics.epoch)
        if end.metrics.epoch == 3:
            end.stop()

    run = siafu.train(graph, gcn(graph), epochs=20, callbacks=[stop], out=tmp_path / "run", **layout)
    assert seen == [1, 2, 3]
    assert len(run.history) == 3
    assert siafu.Run.load(tmp_path / "run").summary()["epochs"] == 3
    plain = siafu.train(graph, gcn(graph), epochs=3, **layout)
    assert timeless(run.history) == timeless(plain.history)


def test_an_asynchronous_run_is_changed_and_stopped_too() -> None:
    graph = toy_graph()
    layout: dict[str, Any] = {"mode": "async", "staleness": 1, "servers": 2, "intervals": 3}

    def slow_down(end: EpochEnd) -> None:
        end.lr = 0.01 / end.metrics.epoch
        if end.metrics.epoch == 5:
            end.stop()

    run = siafu.train(graph, gcn(graph), epochs=30, callbacks=[slow_down], **layout)
    assert 5 <= len(run.history) <= 8
    assert len({each.lr for each in run.history}) > 2


def test_an_error_in_a_callback_is_the_callers_own(tmp_path: Path) -> None:
    """As Optuna's trials are pruned."""

    class Pruned(Exception):
        pass

    def prune(end: EpochEnd) -> None:
        if end.metrics.epoch == 2:
            raise Pruned

    graph = toy_graph()
    with pytest.raises(Pruned):
        siafu.train(graph, gcn(graph), epochs=9, callbacks=[prune], out=tmp_path / "run")
    assert not (tmp_path / "run" / "story.jsonl").exists()
    again = siafu.train(graph, gcn(graph), epochs=4, out=tmp_path / "run", resume=True)
    assert timeless(again.history) == timeless(siafu.train(graph, gcn(graph), epochs=4).history)


def test_a_warm_start_is_with_the_weights_of_a_run_or_a_model(tmp_path: Path) -> None:
    graph = toy_graph()
    first = siafu.train(graph, gcn(graph), epochs=4, out=tmp_path / "first")
    wanted = losses(siafu.train(graph, copy.deepcopy(first.model), epochs=2))
    for start in (first, first.model, tmp_path / "first", str(tmp_path / "first")):
        assert losses(siafu.train(graph, gcn(graph, seed=7), epochs=2, start=start)) == wanted


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"scheduler": "Step(3)"}, r"scheduler is 'Step\(3\)': give a class of torch.optim.lr_scheduler"),
        ({"scheduler": "StepLR(open('x'))"}, "arguments must be numbers"),
        ({"scheduler": "StepLR(x=3)"}, "the scheduler cannot be made: .*x"),
        ({"scheduler": lambda optimizer: 3}, "scheduler makes a int: let it make a scheduler of torch"),
        (
            {"scheduler": lambda _: lr_scheduler.StepLR(torch.optim.SGD([torch.zeros(1)], lr=0.1), 1)},
            "scheduler makes one for another optimizer",
        ),
        ({"scheduler": "StepLR(3)", "mode": "async", "update_every": 2}, "leave one out"),
        (
            {"callbacks": [print], "mode": "async", "update_every": 2},
            "callbacks are for updates .* leave one",
        ),
        ({"callbacks": [3]}, "callbacks has something that cannot be called"),
        ({"groups": {"conv": {"lr": 0.1}}}, "group 'conv' is of no parameter: choose among convs.0.bias"),
        ({"groups": {"convs.0": {"lr": 0.1}, "*.bias": {"lr": 1}}}, "both have convs.0.bias: give it to one"),
        ({"groups": {"convs.0": {"rate": 0.1}}}, "group 'convs.0' has .*: give it lr, weight_decay, or both"),
        ({"groups": {"convs.0": {"lr": -1}}}, "group 'convs.0' has lr -1: give a number above 0"),
        ({"groups": "convs.0 lr=1"}, "groups has 'convs.0 lr=1': give 'PATTERN: lr"),
        ({"groups": "convs.0: lr=1", "decay": "first"}, "decay is first, and groups say"),
        ({"clip": 0.0}, "clip is 0.0: give a norm above 0"),
        ({"start": "nowhere"}, "start is nowhere, which is no directory of a finished run"),
        ({"start": 3}, "start is a int: give a run, its directory, or a model"),
        ({"start": nn.Linear(2, 3)}, "start has the weights of another model"),
    ],
)
def test_what_cannot_be_is_refused(asked: dict[str, Any], told: str) -> None:
    graph = toy_graph()
    with pytest.raises(BadInput, match=told):
        siafu.train(graph, gcn(graph), epochs=2, **asked)


def test_a_rate_that_is_no_number_is_refused() -> None:
    def spoil(end: EpochEnd) -> None:
        end.lr = float("nan")

    graph = toy_graph()
    with pytest.raises(BadInput, match=r"a scheduler or callback set .*nan.*: give finite numbers"):
        siafu.train(graph, gcn(graph), epochs=3, callbacks=[spoil])


def test_hidden_rows_are_what_the_next_layer_takes() -> None:
    graph = toy_graph()
    torch.manual_seed(1)
    model = siafu.nn.GCN(graph.num_features, 8, 3, graph.num_classes, dropout=0.5, norm="layer_norm")
    run = siafu.train(graph, model, epochs=2)
    x = siafu.nn.features(graph)
    with torch.no_grad():
        first = torch.relu(model.norms[0](model.convs[0](graph, x)))
        second = torch.relu(model.norms[1](model.convs[1](graph, first)))
    torch.testing.assert_close(run.rows(graph, layer=0), first)
    torch.testing.assert_close(run.rows(graph), second)
    assert torch.allclose(run.rows(graph, layer=-1), run.logits(graph), atol=1e-6)
    torch.testing.assert_close(run.rows(graph, layer="convs.1"), model.convs[1](graph, first).detach())
    with pytest.raises(BadInput, match="layer is 2, and the model has 3: give a number from -3 to -1"):
        run.rows(graph, layer=2)
    with pytest.raises(BadInput, match="the model has no module 'conv': choose among convs"):
        run.rows(graph, layer="conv")


def test_a_model_without_convs_has_its_modules_listed() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())
    with (
        pytest.raises(BadInput, match="give the name of one of its modules, among 0, 1"),
        hidden_rows(model, -2),
    ):
        pass
