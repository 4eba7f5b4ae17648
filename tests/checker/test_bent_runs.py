"""Runs that bend, under the checker: rates decided epoch by epoch, clipped gradients, epochs that close, an owner who stops."""

from collections import Counter

import pytest

from siafu.pipeline.run_machine.run import RunMachine
from siafu.pipeline.weight_server import WeightServer
from tests.checker.scenario import bent_scenario
from tests.checker.simulation import Machines, simulate
from tests.checker.truth import Violation

SEEDS = 300


@pytest.mark.slow
def test_schedules_of_runs_that_bend_keep_every_invariant() -> None:
    reasons: Counter[str] = Counter()
    restarts = 0
    for seed in range(SEEDS):
        outcome = simulate(bent_scenario(seed))
        reasons[outcome.stop.reason] += 1
        restarts += outcome.restarts
    assert {"finished", "patience", "told"} <= set(reasons)
    assert restarts > 20


class RatesOfTheEpochBefore(RunMachine):
    def _send_rates(self, first, until, homes, out):
        super()._send_rates(max(0, first - 1), max(0, until - 1), homes, out)


class RatesAreSentOnce(RunMachine):
    """It forgets that weight servers that begin again, or take a lost one's place, know nothing."""

    def _send_rates(self, first, until, homes, out):
        if not self.fences.lives:
            super()._send_rates(first, until, homes, out)


class UpdatesDoNotWaitForRates(WeightServer):
    def _rates_set(self, event, out):
        super()._rates_set(event, out)
        self._rates.setdefault(event.version + 1, event.rates)


class NormsOfOneHomeAreEnough(WeightServer):
    def _has_norms(self, version, out):
        super()._has_norms(version, out)
        return bool(self._norms.get(version))


class TheNextEpochDoesNotWaitForTheOwner(RunMachine):
    """The stop comes after epochs that should never have been."""

    def _proceed(self, out):
        self._seen = max(self._seen, self._records.recorded)
        super()._proceed(out)


@pytest.mark.parametrize(
    "machines",
    [
        Machines(run=RatesOfTheEpochBefore),
        Machines(run=RatesAreSentOnce),
        Machines(weight=UpdatesDoNotWaitForRates),
        Machines(weight=NormsOfOneHomeAreEnough),
        Machines(run=TheNextEpochDoesNotWaitForTheOwner),
    ],
    ids=lambda each: (each.run if each.run is not RunMachine else each.weight).__name__,
)
def test_a_fault_is_caught(machines: Machines) -> None:
    with pytest.raises(Violation):
        for seed in reversed(range(SEEDS)):
            simulate(bent_scenario(seed), machines)
