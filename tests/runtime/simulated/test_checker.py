"""The checker can fail: every machine with a fault is caught, and says by which seed."""

import pytest

from siafu.runtime.simulated.scenario import random_scenario
from siafu.runtime.simulated.simulation import simulate
from siafu.runtime.simulated.truth import Violation
from tests.runtime.simulated import faulty_graph_servers, faulty_runs, faulty_weight_servers  # noqa: F401
from tests.runtime.simulated.faults import FAULTS

SEEDS = range(600)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_machine_with_a_fault_is_caught(fault: str) -> None:
    machines, mode = FAULTS[fault]
    for seed in SEEDS:
        try:
            simulate(random_scenario(seed, mode=mode), machines)
        except Violation as violation:
            assert f"seed {seed}:" in str(violation)
            return
    pytest.fail(f"{len(SEEDS)} runs went through with this fault: {fault}")
