"""VirtualGathers: gathers that cores with nothing else to do begin early, as `siafu.runtime.early_gathers` has them."""

from collections.abc import Callable

from siafu.pipeline.ids import IntervalId, LaneName, ServerId
from siafu.pipeline.instructions import BeginTask
from siafu.pipeline.setup import Setup
from siafu.pipeline.task import Task
from siafu.server.costs.work import Work
from siafu.virtual.resources import Cores
from siafu.virtual.stage_costs import StageCosts, TaskCost

_LATER = (1,)
_Key = tuple[LaneName, IntervalId]


class VirtualGathers:
    """How far the gathers of one graph server have come before they run."""

    def __init__(self, setup: Setup, server: ServerId, costs: StageCosts, cores: Cores) -> None:
        self._setup, self._costs, self._cores = setup, costs, cores
        self._sources = {way: setup.layout.sources(server, way) for way in setup.layout.reads}
        self._may: dict[_Key, tuple[BeginTask, TaskCost]] = {}
        self._done: dict[_Key, float] = {}
        self._under_way: set[_Key] = set()
        self._to_run: dict[_Key, Callable[[float], None]] = {}
        self._asked = False

    def begin(self, what: BeginTask) -> None:
        """A gather may be begun, or go on."""
        cost = self._costs.of(what.task.lane, what.task.stage.id)
        if cost is not None and _begins(cost.work):
            self._may[what.task.lane, what.task.interval] = what, cost
            self._ask()

    def end(self, task: Task, run: Callable[[float], None]) -> None:
        """All rows of a gather are there. `run` is told what share was added before, when nobody is adding to it."""
        key = task.lane, task.interval
        self._may.pop(key, None)
        if key in self._under_way:
            self._to_run[key] = run
        else:
            run(self._done.pop(key, 0.0))

    def _ask(self) -> None:
        if not self._asked and self._may.keys() - self._under_way:
            self._asked = True
            part: list[_Key] = []
            self._cores.add(
                _LATER, "gathers begun", lambda: self._add_part(part), lambda: self._end_part(part)
            )

    def _add_part(self, part: list[_Key]) -> float:
        """Begin the first of those that may be begun, which goes into `part`; the seconds that it takes."""
        self._asked = False
        able = self._may.keys() - self._under_way
        if not able:
            return 0.0
        key = min(able, key=lambda each: self._may[each][0].task.priority)
        what, cost = self._may[key]
        self._under_way.add(key)
        part.append(key)
        share, before = self._share(what), self._done.get(key, 0.0)
        reached = min(share, before + 1 / self._setup.gather_parts)
        if reached == share:
            del self._may[key]
        self._done[key] = reached
        self._ask()
        return (reached - before) * cost.seconds

    def _end_part(self, part: list[_Key]) -> None:
        for key in part:
            self._under_way.remove(key)
            if key in self._to_run:
                self._to_run.pop(key)(self._done.pop(key))
        self._ask()

    def _share(self, what: BeginTask) -> float:
        """Of its edges, those whose rows are there."""
        setup = self._setup
        schedule = setup.training if what.task.lane == "train" else setup.evaluation
        sources = self._sources[schedule[what.task.stage.reads[0]].direction]
        return sources.index(what.until) / len(sources)


def _begins(work: Work) -> bool:
    """Not where edges are dense, nor attention forth."""
    return work.gathers and not work.visit and not (work.heads and not work.back)
