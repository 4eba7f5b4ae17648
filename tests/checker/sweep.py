"""Sweep: many simulated runs."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.checker.scenario import random_scenario
from tests.checker.simulation import simulate


@dataclass(slots=True)
class Tally:
    """What the runs of a sweep came to.

    shapes:   how many there were of each (mode, policy)
    reasons:  how they ended
    restarts: how often one began again after a server was lost
    messages: how many were sent
    lead:     the furthest that an interval was ahead of the slowest, by the staleness that was allowed
    """

    runs: int = 0
    restarts: int = 0
    messages: int = 0
    shapes: Counter[tuple[str, int | None]] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    lead: dict[int, int] = field(default_factory=dict)

    def add(self, other: "Tally") -> None:
        self.runs += other.runs
        self.restarts += other.restarts
        self.messages += other.messages
        self.shapes += other.shapes
        self.reasons += other.reasons
        for allowed, lead in other.lead.items():
            self.lead[allowed] = max(lead, self.lead.get(allowed, 0))


def run_seeds(seeds: Iterable[int]) -> Tally:
    """Simulate the random scenario of every seed. The first that breaks a rule raises its `Violation`."""
    tally = Tally()
    for seed in seeds:
        scenario = random_scenario(seed)
        outcome = simulate(scenario)
        setup = scenario.setup
        tally.add(
            Tally(
                runs=1,
                restarts=outcome.restarts,
                messages=outcome.messages,
                shapes=Counter([(setup.mode, setup.policy.max_versions)]),
                reasons=Counter([outcome.stop.reason]),
                lead={setup.staleness: max(outcome.staleness, default=0)} if setup.mode == "async" else {},
            )
        )
    return tally
