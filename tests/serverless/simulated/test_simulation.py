"""Thousands of seeded runs with Lambdas that go wrong; and controllers with faults, each of which is caught."""

from collections import Counter
from dataclasses import replace

import pytest

from siafu.serverless.control.failure import FailureKind
from tests.checker.truth import Violation
from tests.serverless.simulated.faulty_controllers import FAULTS
from tests.serverless.simulated.scenario import Faults, random_scenario
from tests.serverless.simulated.simulation import simulate

RUNS = 500
SEEDS = range(600)


@pytest.mark.slow
def test_whatever_lambdas_do_every_task_gets_one_result_or_the_run_a_reason() -> None:
    outcomes = [simulate(random_scenario(seed)) for seed in range(RUNS)]
    done = [each for each in outcomes if each.failure is None]
    assert len(done) > 0.75 * RUNS
    # What the runs are for was really there.
    dropped: Counter[str] = Counter()
    for each in outcomes:
        dropped.update(each.counts.dropped)
    assert min(dropped[reason] for reason in ("duplicate", "garbage", "stranger")) > 120
    assert sum(each.counts.relaunched for each in done) > 120
    assert sum(each.counts.retried for each in done) > 120
    assert sum(each.counts.strangers for each in done) > 120
    failures: Counter[FailureKind] = Counter()
    for each in outcomes:
        failures.update(each.counts.failures)
    seen = (FailureKind.THROTTLED, FailureKind.UNAVAILABLE, FailureKind.CRASHED, FailureKind.TIMED_OUT)
    assert min(failures[kind] for kind in seen) > 50
    reasons = Counter(each.failure.split(":")[0][:14] for each in outcomes if each.failure)
    assert {"a Lambda canno", "no Lambda came"} < set(reasons)
    assert any("came to nothing" in (each.failure or "") for each in outcomes)


@pytest.mark.slow
def test_a_few_that_are_killed_hang_or_talk_nonsense_never_end_a_run() -> None:
    faults = Faults(dies=0.05, hangs=0.05, twice=0.05, garbage=0.02, again=0.05, late=0.05, throttled=0.05)
    scenarios = [replace(random_scenario(seed), faults=faults, doomed={}) for seed in range(RUNS)]
    outcomes = [simulate(each) for each in scenarios]
    assert [each.failure for each in outcomes if each.failure] == []
    assert sum(each.counts.relaunched for each in outcomes) > 100


def test_the_same_seed_replays_the_same_run() -> None:
    assert [simulate(random_scenario(seed)) for seed in range(30)] == [
        simulate(random_scenario(seed)) for seed in range(30)
    ]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_controller_with_a_fault_is_caught(fault: str) -> None:
    for seed in SEEDS:
        try:
            simulate(random_scenario(seed), FAULTS[fault])
        except Violation as violation:
            assert f"seed {seed}:" in str(violation)
            return
    pytest.fail(f"{len(SEEDS)} runs went through with this fault: {fault}")
