"""The autotuner: how many Lambdas the next epoch should have, from how the queues stood in those before.

A graph-task queue that never drains means that Lambdas make work faster than the cores do it: fewer will do. One that
drains while tensor tasks wait means that cores idle for want of Lambdas: more are needed. Whether it was right shows in
the epochs' times: a count that brought nothing is not tried again for a while.
"""

from collections.abc import Sequence

from siafu.serverless.queue_watch import Period

MOST_AT_FIRST = 100
MEMORY = 40  # epochs: what is older may no longer hold, and is tried anew

_HUNGRY = 0.1
_STARVED = 0.5
_BACKLOG = 0.05
_SAME_PACE = 0.05  # epochs whose times differ by less count as equally long
_SETTLED = 2  # epochs with one count: in the first, its new Lambdas start cold


def first_count(intervals: int, limit: int) -> int:
    """How many Lambdas to begin with."""
    return max(1, min(intervals, MOST_AT_FIRST, limit))


def next_count(history: Sequence[Period], limit: int) -> int:
    """How many Lambdas the next epoch should have.

    history: one period an epoch, the latest last; at least one
    limit:   how many there may be at most
    """
    recent = history[-MEMORY:]
    last = recent[-1]
    ceiling = max(1, min(limit, max(each.most for each in recent)))
    if last.count > ceiling:
        return ceiling
    if not _is_settled(recent) and last.hungry < _STARVED:
        return last.count
    paces = _paces(recent)
    smaller = max((count for count in paces if count < last.count), default=None)
    if smaller is not None and _gains_nothing(paces[smaller], paces[last.count]):
        return smaller
    if last.hungry > _HUNGRY:
        return min(ceiling, _more(last.count, paces))
    if last.drained < _BACKLOG:
        return _fewer(last.count, paces)
    return last.count


def _is_settled(recent: Sequence[Period]) -> bool:
    latest = recent[-_SETTLED:]
    return len(latest) == _SETTLED and len({each.count for each in latest}) == 1


def _paces(recent: Sequence[Period]) -> dict[int, float]:
    """Each count's best time: what disturbs an epoch only makes it longer."""
    paces: dict[int, float] = {}
    for each in recent:
        paces[each.count] = min(each.seconds, paces.get(each.count, each.seconds))
    return paces


def _gains_nothing(with_fewer: float, with_more: float) -> bool:
    return with_more > (1 - _SAME_PACE) * with_fewer


def _more(count: int, paces: dict[int, float]) -> int:
    """Twice as many; or halfway to the next count that was tried, if that is faster."""
    tried = min((each for each in paces if each > count), default=None)
    if tried is None:
        return 2 * count
    if _gains_nothing(paces[count], paces[tried]):
        return count
    between = (count + tried) // 2
    return between if between > count else tried


def _fewer(count: int, paces: dict[int, float]) -> int:
    """Half as many; or halfway to the next count that was tried and is slower."""
    tried = max((each for each in paces if each < count), default=0)
    return max(1, (count + tried) // 2) if (count + tried) // 2 > tried else count
