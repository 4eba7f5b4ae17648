"""A run on a cluster bends as one in this process does, also when servers are killed."""

import copy

import pytest
import torch

from siafu.training.pace import EpochEnd
from siafu.training.trainer import Trainer
from tests.cluster.cases import SETTINGS, case
from tests.cluster.cluster_runs import CrewTrainer, graph, train_on_crew, weight
from tests.cluster.dooms import Doom
from tests.training_runs import options

pytestmark = pytest.mark.slow  # starts servers as processes

BENT = {"scheduler": "StepLR(step_size=2, gamma=0.5)", "clip": 0.05, "groups": "convs.0: lr=0.1"}


def halve(end: EpochEnd) -> None:
    end.optimizer.param_groups[1]["lr"] *= 0.5


@pytest.mark.parametrize("called", [False, True], ids=["schedule", "callback"])
def test_a_cluster_bends_exactly_though_servers_are_killed(
    called: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    callbacks = [halve] if called else []
    given, init = case("gcn"), Trainer.__init__
    monkeypatch.setattr(
        CrewTrainer,
        "__init__",
        lambda self, *args, **more: init(self, *args, **more, callbacks=callbacks),
    )
    dooms = {(graph(1), 1): Doom("EpochFinished", 3), (weight(0), 1): Doom("Update", 5)}
    ran = train_on_crew("gcn", epochs=6, dooms=dooms, checkpoint_every=0.0, **BENT)
    assert ran.rewound
    settings = options(servers=2, intervals=3, weight_servers=2, epochs=6, **SETTINGS, **BENT)
    from siafu.training.placement import choose_partition

    here = Trainer(
        given.graph,
        copy.deepcopy(given.model),
        settings,
        choose_partition(given.graph, 2, "hash"),
        given.programs,
        callbacks=callbacks,
    )
    here.prepare()
    for _ in here.run():
        pass
    assert ran.losses == [each.train_loss for each in here.history]
    assert [each.lr for each in ran.history] == [each.lr for each in here.history]
    assert torch.is_tensor(ran.weights["convs.0.bias"])
