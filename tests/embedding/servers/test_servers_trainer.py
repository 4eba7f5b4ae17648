"""Several servers, as threads that talk over sockets; two tests start processes."""

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import siafu
from siafu.base.errors import BadInput, SiafuError
from siafu.embedding.evaluation import Evaluator
from siafu.embedding.servers import start
from siafu.embedding.servers.embed_station import EmbedStation
from siafu.embedding.servers.process_crew import ProcessCrew
from siafu.embedding.servers.server_plan import EmbedPlan, epoch_states, with_partitions
from siafu.embedding.servers.servers_trainer import ServersTrainer
from siafu.embedding.steps.negatives import generator
from siafu.graph.triples import read_triples
from siafu.graph.triples.triple_import import import_triples
from tests.cluster.thread_crew import ThreadCrew, ThreadServer
from tests.embedding.knowledge import SMALL, families, small_options, write_families

EPOCHS = 8


@pytest.fixture
def store(tmp_path: Path) -> Path:
    import_triples(write_families(tmp_path / "families"), tmp_path / "families.store")
    return tmp_path / "families.store"


def _trainer(
    store: Path, servers: int = 2, precision: str = "fp32", **crew: Any
) -> tuple[ServersTrainer, ThreadCrew]:
    triples, options = (
        read_triples(store),
        with_partitions(small_options(servers=servers, epochs=EPOCHS, precision=precision)),
    )
    plan = EmbedPlan(str(store), triples.fingerprint, options.as_json(), str(store.parent), servers, 1)
    made = ThreadCrew(partial(EmbedStation, plan=plan), **crew)
    return ServersTrainer(triples, options, made), made


def _mrr(trainer: ServersTrainer) -> float:
    return Evaluator(trainer.triples, trainer.options).scores(trainer.embeddings, "test").mrr


@pytest.mark.parametrize(("apart", "precision"), [(False, "fp32"), (True, "bf16")])
def test_servers_learn_what_one_learns(store: Path, apart: bool, precision: str) -> None:
    alone = siafu.embed(families(), **{**SMALL, "epochs": EPOCHS}).summary()
    trainer, _ = _trainer(store, precision=precision, apart=apart)
    for _ in range(EPOCHS):
        losses = trainer.run_epoch()
        assert losses is not None
        assert losses.triples == len(trainer.triples.train)  # each once
    found = _mrr(trainer)
    trainer.close()
    assert found > alone["test_mrr"] - 0.1


def _killed_at(batches: int) -> Callable[[ThreadServer], None]:
    """Server 1, in its first life, while it trains."""

    def before(server: ThreadServer) -> None:
        if (server.address.index, server.life) != (1, 1):
            return
        train, seen = server.station._trainer.train, [0]

        def dying(*arguments: Any) -> Any:
            losses = train(*arguments)
            seen[0] += 1
            if seen[0] == batches:
                server.kill()
            return losses

        server.station._trainer.train = dying  # type: ignore[method-assign]

    return before


def test_a_killed_servers_state_is_trained_again_and_no_other(store: Path) -> None:
    trainer, crew = _trainer(store, before=_killed_at(2))
    for _ in range(EPOCHS):
        losses = trainer.run_epoch()
        assert losses is not None
        assert losses.triples == len(trainer.triples.train)
    assert trainer.states_again == 1
    assert {each.life for each in crew.servers.values()} == {1, 2}
    found = _mrr(trainer)
    trainer.close()
    assert found > 0.3


def test_both_keepers_lost_at_once_is_one_clear_line(store: Path) -> None:
    trainer, crew = _trainer(store)
    trainer.run_epoch()
    for server in crew.servers.values():
        server.kill()
    with pytest.raises(SiafuError, match="were lost at once: go on with --resume"):
        trainer.run_epoch()
    trainer.close()


def test_tables_are_written_back_to_all_keepers(store: Path) -> None:
    trainer, _ = _trainer(store)
    trainer.run_epoch()
    arrays, steps = trainer.state()
    kept = {name: _whole(table) for name, table in arrays.items()}
    trainer.run_epoch()
    trainer.restore(kept, steps)
    for name, table in trainer.state()[0].items():
        assert np.array_equal(_whole(table), kept[name]), name
    assert trainer.run_epoch() is not None
    trainer.close()


def _whole(table: Any) -> Any:
    return np.concatenate(list(table.parts())) if hasattr(table, "parts") else table.copy()


def test_an_epoch_has_every_bucket_once_and_states_side_by_side_share_nothing() -> None:
    states = epoch_states(16, 4, generator(1))
    buckets = [bucket for state in states for bucket in state.buckets]
    assert sorted(buckets) == [(i, j) for i in range(16) for j in range(16)]
    for first in range(0, len(states), 4):  # of four servers
        held = [partition for state in states[first : first + 4] for partition in state.resident]
        assert sorted(held) == list(range(16))


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"exact": True}, "exact is for one"),
        ({"all_entities": True}, "all_entities is for one"),
        ({"optimizer": "adam"}, "choose adagrad"),
        ({"order": "beta"}, "order is for one server"),
        ({"partitions": 3}, "2 servers need 4 partitions"),
        ({"partitions": 8, "buffer": 6}, "buffer is 6"),
    ],
)
def test_options_that_do_not_fit_several_servers_are_refused(options: dict[str, Any], line: str) -> None:
    with pytest.raises(BadInput, match=line):
        siafu.embed(families(), servers=2, **options)


def test_triples_in_memory_and_a_cluster_for_one_are_refused() -> None:
    with pytest.raises(BadInput, match="import them into a store"):
        siafu.embed(families(), servers=2)
    with pytest.raises(BadInput, match="say how many"):
        siafu.embed(families(), cluster="auto")


def test_more_servers_than_memory_holds_are_refused(store: Path) -> None:
    with pytest.raises(BadInput, match="8 servers on this machine"):
        siafu.embed(store, servers=8, memory="2GB")


@pytest.mark.slow
def test_a_process_that_is_killed_is_replaced_and_the_run_goes_on_and_resumes(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crews = []

    class Crew(ProcessCrew):
        def __init__(self, plan: EmbedPlan) -> None:
            super().__init__(plan)
            crews.append(self)

    killed = []

    def kill_once(trainer: ServersTrainer, *rest: Any) -> Any:
        if trainer.epoch == 1 and not killed:
            victim = next(iter(crews[0].servers.values()))
            os.kill(victim.process.pid, signal.SIGKILL)
            killed.append(victim.process.pid)
        return run_epoch(trainer, *rest)

    run_epoch = ServersTrainer.run_epoch
    monkeypatch.setattr(start, "ProcessCrew", Crew)
    monkeypatch.setattr(ServersTrainer, "run_epoch", kill_once)
    options = {**SMALL, "servers": 2, "out": tmp_path / "run"}
    first = siafu.embed(store, **{**options, "epochs": 3})
    assert killed
    assert [each.epoch for each in first.history] == [1, 2, 3]
    again = siafu.embed(store, **{**options, "epochs": 5}, resume=True)
    assert [each.epoch for each in again.history] == [1, 2, 3, 4, 5]
    assert again.summary()["test_mrr"] > 0.2
    for crew in crews:
        assert all(each.process.poll() is not None for each in crew.servers.values())
