"""The checker can fail: every machine with a fault is caught, and says by which seed."""

import pytest

from tests.checker import (  # noqa: F401
    faulty_closing,
    faulty_copies,
    faulty_graph_servers,
    faulty_runs,
    faulty_succession,
    faulty_weight_servers,
)
from tests.checker.faults_within import WITHIN
from tests.checker.planted_faults import FAULTS
from tests.checker.scenario import random_scenario
from tests.checker.simulation import simulate
from tests.checker.truth import Violation

RUNS = 1500
FEW = range(40)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.slow
def test_a_machine_with_a_fault_is_caught(fault: str) -> None:
    planted = FAULTS[fault]
    for seed in range(planted.shows, planted.shows + RUNS):
        try:
            simulate(planted.scenario(seed), planted.machines)
        except Violation as violation:
            assert f"seed {seed}:" in str(violation)
            return
    pytest.fail(f"{RUNS} runs went through with this fault: {fault}")


@pytest.mark.parametrize("fault", WITHIN)
@pytest.mark.slow
def test_a_fault_within_is_seen_by_nobody_but_the_machine_itself(fault: str) -> None:
    machines = FAULTS[fault].machines
    for seed in FEW:
        simulate(random_scenario(seed), machines, validated=False)
    with pytest.raises(Violation, match=" after "):
        for seed in FEW:
            simulate(random_scenario(seed), machines)


def test_a_run_that_stands_still_tells_what_happened_last_and_what_waits() -> None:
    planted = FAULTS["ghost rows are lost"]
    with pytest.raises(Violation, match="nothing is under way") as caught:
        for seed in range(RUNS):
            simulate(random_scenario(seed, mode=planted.mode), planted.machines)
    told = str(caught.value)
    assert told.index("\nLast:\n") < told.index("\nWaiting:\n")
    assert "from intervals [0" in told
