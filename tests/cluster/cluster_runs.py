"""Trainings on a crew of forked processes, and what a judge wants to see of them."""

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import Tensor

from siafu.cluster.runtime import ClusterRuntime
from siafu.graph.partition import Partition
from siafu.pipeline.ids import Address, ServerId
from siafu.report.files.metrics import EpochMetrics
from siafu.runtime.happenings import Rewound
from siafu.server.memory.savings import Savings
from siafu.training.placement import choose_partition
from siafu.training.records.checkpoint import Checkpoint
from siafu.training.trainer import Trainer
from tests.cluster.cases import case, settings_of
from tests.cluster.dooms import Doom
from tests.cluster.fork_crew import ForkCrew
from tests.oracle import History
from tests.training_runs import options

Dooms = Mapping[tuple[Address, int], Doom]


def graph(index: int) -> Address:
    return Address("graph", ServerId(index))


def weight(index: int) -> Address:
    return Address("weight", ServerId(index))


@dataclass
class Ran:
    """What a training on a crew did.

    epochs:      the numbers of the epochs in its history, in order
    rewound:     what was lost, as it was told
    checkpoints: what was saved, the last included
    """

    losses: list[float]
    epochs: list[int]
    weights: dict[str, Tensor]
    counters: dict[str, Any]
    history: list[EpochMetrics]
    crew: ForkCrew
    rewound: list[Rewound] = field(default_factory=list)
    checkpoints: list[Checkpoint] = field(default_factory=list)


class CrewTrainer(Trainer):
    """A trainer whose servers are forked processes."""

    crew: ForkCrew
    runtime: ClusterRuntime

    def set_crew(self, crew: ForkCrew, lost_after: float, redundancy: int | Literal["eager"]) -> None:
        self.crew, self._lost_after, self._copies = crew, lost_after, redundancy

    def end_epochs_with(self, ended: Callable[["CrewTrainer", int], None]) -> None:
        """Have something called as every epoch ends, before the next begins."""
        self._pace = self._paced([lambda end: ended(self, end.metrics.epoch)])

    def _prepare_cluster(self, due: Any, log: Path | None) -> list[str]:
        self.runtime = ClusterRuntime(
            self.plan,
            self.crew,
            self._run_machine,
            self._start,
            log=log,
            checkpoint_due=due,
            redundancy=self._copies,
            lost_after=self._lost_after,
            look_after=0.5,
            traced=True,
        )
        lines = self.runtime.prepare()
        self._runtime = self.runtime
        return lines


def trainer_on_crew(
    name: str,
    *,
    servers: int = 2,
    partition: str | Partition = "hash",
    lost_after: float = 20.0,
    redundancy: int | Literal["eager"] = 0,
    crew: Mapping[str, Any] | None = None,
    savings: Savings | None = None,
    **changes: Any,
) -> CrewTrainer:
    """Ready to be prepared. Close its crew's processes with `crew.end_all`."""
    given = case(name)
    layout = {"intervals": 3, "weight_servers": 2, **settings_of(name)}
    settings = options(servers=servers, **(layout | changes))
    placed = (
        partition if isinstance(partition, Partition) else choose_partition(given.graph, servers, partition)
    )
    trainer = CrewTrainer(given.graph, given.model, settings, placed, given.programs, cluster="processes")
    trainer.plan = trainer.plan.saving(savings or Savings())
    trainer.set_crew(ForkCrew(name, trainer.plan, **(crew or {})), lost_after, redundancy)
    return trainer


def train_on_crew(
    name: str,
    *,
    dooms: Dooms | None = None,
    checkpoint_every: float | None = None,
    log: Path | None = None,
    heard: Callable[[CrewTrainer, Any], None] = lambda trainer, event: None,
    ended: Callable[[CrewTrainer, int], None] | None = None,
    crew: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Ran:
    """Train one of the cases.

    heard: is told of everything that happens, as it happens
    ended: is told of every epoch that ends, by its number, and the next waits for it
    """
    trainer = trainer_on_crew(name, crew={"dooms": dooms or {}, **(crew or {})}, **changes)
    if ended is not None:
        trainer.end_epochs_with(ended)
    rewound, saved = [], []
    try:
        trainer.prepare(checkpoint_every, log)
        with closing(trainer.run()) as events:
            for event in events:
                if isinstance(event, Rewound):
                    rewound.append(event)
                elif isinstance(event, Checkpoint):
                    saved.append(event)
                heard(trainer, event)
    finally:
        trainer.crew.end_all()
    weights = {
        name.removeprefix("model."): tensor
        for name, tensor in saved[-1].tensors.items()
        if name.startswith("model.")
    }
    return Ran(
        [epoch.train_loss for epoch in trainer.history],
        [epoch.epoch for epoch in trainer.history],
        weights,
        trainer.counters(),
        trainer.history,
        trainer.crew,
        rewound,
        saved,
    )


def assert_exact(ran: Ran, truth: History) -> None:
    """Every epoch once, with the oracle's loss, and its weights at the end."""
    assert ran.epochs == list(range(1, len(truth.losses) + 1))
    np.testing.assert_allclose(ran.losses, truth.losses, rtol=1e-9)
    assert ran.weights.keys() == truth.weights.keys()
    for name, weight in truth.weights.items():
        # A bias before a norm is zero but for rounding.
        largest = weight.double().abs().max().clamp(min=1e-6)
        assert float((ran.weights[name].double() - weight).abs().max() / largest) < 1e-9, name
