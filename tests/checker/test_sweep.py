"""Thousands of seeded schedules, each under the checker."""

import os
from dataclasses import replace

import pytest

from tests.checker.scenario import eager_scenario, handing_over_scenario, losing_scenario, random_scenario
from tests.checker.simulation import simulate
from tests.checker.sweep import run_seeds

SCHEDULES = int(os.environ.get("SIAFU_SCHEDULES", "2000"))
"""How many seeds are tried. CI has half an hour: `SIAFU_SCHEDULES=10000 pytest tests/checker` tries more."""

SHARES = [range(first, first + 1000) for first in range(0, SCHEDULES, 1000)]

LOSING = int(os.environ.get("SIAFU_LOSING_SCHEDULES", "200"))
"""How many of exact runs that lose servers, and a third as many of asynchronous ones. `SIAFU_LOSING_SCHEDULES=10000` takes about ten minutes of a core."""


@pytest.mark.slow
@pytest.mark.parametrize("seeds", SHARES, ids=str)
def test_thousands_of_schedules_keep_every_invariant(seeds: range) -> None:
    tally = run_seeds(seeds)
    assert tally.runs == len(seeds)
    # What the sweep is for was really there: all modes and policies, all ways to end, losses and leads.
    assert set(tally.shapes) == {
        (mode, versions) for mode in ("sync", "pipe", "async") for versions in (None, 2, 1)
    }
    assert set(tally.reasons) == {"finished", "patience", "asked", "diverged"}
    assert tally.restarts > 100
    assert tally.lead == {0: 0, 1: 1, 2: 2}


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "seeds"), [(None, LOSING), ("async", LOSING // 3)], ids=["exact", "async"])
def test_schedules_that_lose_servers_keep_every_invariant(mode: str | None, seeds: int) -> None:
    drawn = [losing_scenario(seed, mode=mode) for seed in range(seeds)]
    found = [simulate(each) for each in drawn]
    assert sum(each.losses for each in found) > seeds
    assert sum(each.lost for each in found) > seeds / 5, "letters are lost with their sender"
    if mode is None:
        # But for gathers by columns, no one begins again, and of all tasks only those of lost servers are run again.
        found = [run for run, each in zip(found, drawn, strict=True) if each.setup.resumes]
        assert len(found) > seeds / 2
        assert {each.restarts for each in found} == {0}
        assert 0 < sum(each.again for each in found) < 0.05 * sum(each.tasks for each in found)


@pytest.mark.slow
def test_schedules_with_eager_copies_keep_every_invariant_and_run_less_again() -> None:
    drawn = [each for seed in range(250) if (each := eager_scenario(seed)).setup.ahead is not None]
    found = [simulate(each) for each in drawn]
    assert sum(each.losses for each in found) > 3 * len(drawn)
    assert sum(each.ahead for each in found) > len(drawn), "eager copies take over"
    assert {each.restarts for each in found} == {0}
    without = [simulate(replace(each, faults=replace(each.faults, copies=()))) for each in drawn]
    assert sum(each.adopted for each in found) > len(drawn)
    assert {each.adopted for each in without} == {0}
    assert sum(each.again for each in found) < sum(each.again for each in without)


def test_one_that_is_given_up_may_enter_an_epoch_before_others_know_of_its_successor() -> None:
    assert simulate(losing_scenario(4234)).stop.reason == "finished"


@pytest.mark.slow
def test_a_hand_over_runs_nothing_again_but_an_evaluation() -> None:
    drawn = [each for seed in range(150) if (each := handing_over_scenario(seed)).setup.resumes]
    never = [
        replace(each, options=replace(each.options, evaluate_every=10**6, patience=None)) for each in drawn
    ]
    assert sum(simulate(each).handed for each in drawn) > 100
    found = [simulate(each) for each in never]
    assert sum(each.handed for each in found) > 100
    last = [each.again for each in found if each.again]
    assert not last, f"{last} tasks were run again"
    assert {each.restarts for each in found} == {0}


@pytest.mark.slow
def test_the_same_seed_replays_the_same_run() -> None:
    assert [simulate(random_scenario(seed)) for seed in range(30)] == [
        simulate(random_scenario(seed)) for seed in range(30)
    ]


@pytest.mark.slow
def test_seeds_differ() -> None:
    assert len({simulate(random_scenario(seed)).makespan for seed in range(30)}) == 30


@pytest.mark.slow
def test_a_tally_adds_up() -> None:
    together = run_seeds(range(40))
    apart = run_seeds(range(15))
    apart.add(run_seeds(range(15, 40)))
    assert together == apart
