"""The autotuner: the number of Lambdas for the next epoch, from the queues of the epochs before.

If the graph-task queue drains while tensor tasks wait, cores are idle for lack of Lambdas: more are tried. If it does
not drain, Lambdas make work faster than the cores do it: fewer are enough. Queues do not show everything: Lambdas may
slow each other down, and with barriers twelve may do no more than eight. So the epoch time decides: the fewest Lambdas
that are about as fast as any count that was tried.
"""

from collections.abc import Iterator, Sequence

from siafu.serverless.control.queue_watch import Period

MOST_AT_FIRST = 100
MEMORY = 100  # epochs: what is older may no longer hold, and is tried anew

_HUNGRY = 0.1
_STARVED = 0.5
_AS_FAST = 1.05  # epochs whose times differ by less count as equally long
_HOPELESS = 1.5  # times the best: one epoch is enough to see that
_CHANCE = 3  # epochs: the third shows how fast a count is
_APART = 1.4  # counts closer than this are not told apart


def first_count(intervals: int, limit: int) -> int:
    """Number of Lambdas to begin with."""
    return max(1, min(intervals, MOST_AT_FIRST, limit))


def next_count(history: Sequence[Period], limit: int) -> int:
    """Number of Lambdas for the next epoch.

    history: one period an epoch, the latest last; at least one
    limit:   the most Lambdas that there may be
    """
    recent = history[-MEMORY:]
    last = recent[-1]
    ceiling = max(1, min(limit, max(each.most for each in recent)))
    if last.count > ceiling:
        return ceiling
    paces = _paces(recent, ceiling)
    if last.hungry > _STARVED and last.count == max(paces) < ceiling:
        return min(2 * last.count, ceiling)
    if not _is_judged(recent, paces):
        return last.count
    best = min(count for count, pace in paces.items() if pace <= _AS_FAST * min(paces.values()))
    hungry = next(each.hungry for each in reversed(recent) if each.count == best) > _HUNGRY
    return next(_worth_trying(best, hungry, paces, ceiling), best)


def _paces(recent: Sequence[Period], ceiling: int) -> dict[int, float]:
    """Best epoch time of each count: disturbances only make an epoch longer."""
    paces: dict[int, float] = {}
    for each in recent:
        if each.count <= ceiling:
            paces[each.count] = min(each.seconds, paces.get(each.count, each.seconds))
    return paces


def _is_judged(recent: Sequence[Period], paces: dict[int, float]) -> bool:
    """Whether the latest count had enough epochs: new Lambdas start cold, and first fetch the rows that they keep."""
    last, chance = recent[-1], recent[-_CHANCE:]
    again = len(chance) == _CHANCE and all(each.count == last.count for each in chance)
    return again or last.seconds > _HOPELESS * min(paces.values())


def _worth_trying(best: int, hungry: bool, paces: dict[int, float], ceiling: int) -> Iterator[int]:
    """Untried counts around the best one that may be better."""
    above = min((count for count in paces if count > best), default=None)
    below = max((count for count in paces if count < best), default=None)
    if hungry and above is None and best < ceiling:
        yield min(2 * best, ceiling)
    if below is None and best > 1:
        yield best // 2
    if hungry and above is not None and above > _APART * best and above > best + 1:
        yield (best + above) // 2
    may_crowd = above is not None or best == ceiling
    if below is not None and best > _APART * below and best > below + 1 and (may_crowd or not hungry):
        yield (best + below) // 2
