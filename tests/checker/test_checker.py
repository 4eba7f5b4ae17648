"""The checker can fail: every machine with a fault is caught, and says by which seed."""

import pytest

from tests.checker import faulty_graph_servers, faulty_runs, faulty_weight_servers  # noqa: F401
from tests.checker.planted_faults import FAULTS
from tests.checker.scenario import random_scenario
from tests.checker.simulation import simulate
from tests.checker.truth import Violation

SEEDS = range(1500)
_RARE = "a gather does not wait for rows that are late beyond the staleness"  # takes many seeds to show


@pytest.mark.parametrize(
    "fault", [pytest.param(name, marks=pytest.mark.slow if name == _RARE else ()) for name in FAULTS]
)
def test_a_machine_with_a_fault_is_caught(fault: str) -> None:
    machines, mode = FAULTS[fault]
    for seed in SEEDS:
        try:
            simulate(random_scenario(seed, mode=mode), machines)
        except Violation as violation:
            assert f"seed {seed}:" in str(violation)
            return
    pytest.fail(f"{len(SEEDS)} runs went through with this fault: {fault}")
