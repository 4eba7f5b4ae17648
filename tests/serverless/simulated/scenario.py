"""Scenario: all that decides a simulated run of a controller, drawn from a seed."""

import random
from dataclasses import dataclass, field
from typing import Literal

from siafu.serverless.control.controller_options import ControllerOptions

Doom = Literal["crash", "garbage", "hang"]


@dataclass(frozen=True, slots=True)
class Faults:
    """Chances, each from 0 to 1, and what else goes wrong.

    throttled, unavailable: that an invocation is refused for now
    refused:     the invocation from which on the platform refuses all for good; None: never
    outage:      from which time on no invocation succeeds; None: never
    stillborn:   that a Lambda dies, or hangs, before it is heard of
    twice:       that an invocation is run twice
    dies, hangs: that a Lambda does so while it is at a task
    garbage:     that a result is unusable
    returns:     that a Lambda gives a task back
    again:       that a result comes a second time, any time later
    late:        that a task takes up to a thousand times as long
    repeats:     that an ask, or the report of an end, comes twice
    unreported:  that no one tells of an end
    forged:      that with a result comes one for a task which its Lambda was never given
    disordered:  messages of one Lambda overtake each other
    """

    throttled: float = 0.0
    unavailable: float = 0.0
    refused: int | None = None
    outage: float | None = None
    stillborn: float = 0.0
    twice: float = 0.0
    dies: float = 0.0
    hangs: float = 0.0
    garbage: float = 0.0
    returns: float = 0.0
    again: float = 0.0
    late: float = 0.0
    repeats: float = 0.0
    unreported: float = 0.0
    forged: float = 0.0
    disordered: bool = False


@dataclass(frozen=True, slots=True)
class Scenario:
    """All that decides a simulated run.

    chains, length: so many intervals, each with so many tasks one after the other
    kinds:      seconds that tasks of each kind take
    doomed:     tasks that no Lambda survives
    can_kill:   the platform ends what is cancelled
    timeout:    after how long the platform ends a Lambda
    idle:       how long a Lambda waits for a task
    counts:     when the number of Lambdas changes, to what
    abandoned:  when all tasks are abandoned, and begin again
    jumps:      when the clock jumps, how far
    """

    seed: int
    options: ControllerOptions
    faults: Faults
    chains: int
    length: int
    kinds: dict[str, float]
    latency: float = 0.01
    cold: float = 0.3
    can_kill: bool = True
    timeout: float = 100.0
    idle: float = 2.0
    doomed: dict[int, Doom] = field(default_factory=dict)
    counts: tuple[tuple[float, int], ...] = ()
    abandoned: tuple[float, ...] = ()
    jumps: tuple[tuple[float, float], ...] = ()


def random_scenario(seed: int) -> Scenario:
    """A small run with any faults. The same seed gives the same run."""
    source = random.Random(seed)
    timeout = source.choice([30.0, 100.0])
    count = source.choice([1, 1, 2, 4, 9])
    latency = source.choice([0.001, 0.05, 0.3])
    chains, length = source.randint(1, 8), source.randint(1, 5)
    return Scenario(
        seed=seed,
        options=ControllerOptions(
            where="a simulated function",
            count=count,
            spares=source.choice([0, 1, count]),
            ratio=source.choice([1.5, 3.0]),
            floor=source.choice([0.05, 1.0]),
            default=10.0,
            start=source.choice([2.0, 5.0]),
            lifetime=timeout + 10.0,
            places=source.choice([1, 2, 3]),
        ),
        faults=_random_faults(source),
        chains=chains,
        length=length,
        kinds={"T1": source.choice([0.02, 1.0]), "∇T1": source.choice([0.1, 2.0])},
        latency=latency,
        cold=source.choice([0.2, 1.0]),
        can_kill=source.random() < 0.5,
        timeout=timeout,
        idle=source.choice([3 * latency, 2.0, 20.0]),
        doomed={source.randrange(chains * length): source.choice(["crash", "garbage", "hang"])}
        if source.random() < 0.1
        else {},
        counts=tuple(
            (source.random() * 20, source.randint(1, 8)) for _ in range(source.choice([0, 0, 1, 3]))
        ),
        abandoned=(source.random() * 5,) if source.random() < 0.15 else (),
        jumps=tuple((source.random() * 20, source.choice([-1000.0, -0.5, 3.0, 5000.0])) for _ in range(2))
        if source.random() < 0.2
        else (),
    )


def _random_faults(source: random.Random) -> Faults:
    def some(chance: float) -> float:
        return chance * source.random() if source.random() < 0.4 else 0.0

    return Faults(
        throttled=some(0.6),
        unavailable=some(0.3),
        refused=source.randrange(6) if source.random() < 0.06 else None,
        outage=source.random() * 10 if source.random() < 0.05 else None,
        stillborn=some(0.3),
        twice=some(0.5),
        dies=some(0.3),
        hangs=some(0.3),
        garbage=some(0.3),
        returns=some(0.3),
        again=some(0.5),
        late=some(0.3),
        repeats=some(0.5),
        unreported=some(0.5),
        forged=some(0.5),
        disordered=source.random() < 0.2,
    )
