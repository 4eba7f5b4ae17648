"""VirtualGathers: gathers that cores with nothing else to do begin early, as `siafu.runtime.early_gathers` has them."""

from siafu.pipeline.ids import IntervalId, LaneName, ServerId
from siafu.pipeline.instructions import BeginTask
from siafu.pipeline.setup import Setup
from siafu.pipeline.task import Task
from siafu.server.costs.work import Work
from siafu.virtual.agenda import Agenda
from siafu.virtual.resources import Cores
from siafu.virtual.stage_costs import StageCosts, TaskCost

_LATER = (1,)
_Key = tuple[LaneName, IntervalId]


class VirtualGathers:
    """How far the gathers of one graph server have come before they run."""

    def __init__(
        self, agenda: Agenda, setup: Setup, server: ServerId, costs: StageCosts, cores: Cores
    ) -> None:
        self._agenda, self._setup, self._costs, self._cores = agenda, setup, costs, cores
        self._sources = {way: setup.layout.sources(server, way) for way in setup.layout.reads}
        self._may: dict[_Key, tuple[BeginTask, TaskCost]] = {}
        self._done: dict[_Key, float] = {}
        self._busy_until: dict[_Key, float] = {}
        self._asked = False

    def begin(self, what: BeginTask) -> None:
        """A gather may be begun, or go on."""
        cost = self._costs.of(what.task.lane, what.task.stage.id)
        if cost is not None and _begins(cost.work):
            self._may[what.task.lane, what.task.interval] = what, cost
            self._ask()

    def rest(self, task: Task, cost: TaskCost) -> float:
        """Seconds that a gather takes that runs now: of what was not added to it, or is being added."""
        key = task.lane, task.interval
        self._may.pop(key, None)
        done = self._done.pop(key, 0.0)
        under_way = max(0.0, self._busy_until.pop(key, 0.0) - self._agenda.now)
        return under_way + (1.0 - done) * cost.seconds

    def _ask(self) -> None:
        if self._may and not self._asked:
            self._asked = True
            self._cores.add(_LATER, "gathers begun", self._next, lambda: None)

    def _next(self) -> float:
        """Begin the first of those that may be begun; the seconds that it takes."""
        self._asked = False
        if not self._may:
            return 0.0
        key = min(self._may, key=lambda each: self._may[each][0].task.priority)
        what, cost = self._may.pop(key)
        share = self._share(what)
        seconds = max(0.0, share - self._done.get(key, 0.0)) * cost.seconds
        self._done[key] = share
        self._busy_until[key] = max(self._agenda.now, self._busy_until.get(key, 0.0)) + seconds
        self._ask()
        return seconds

    def _share(self, what: BeginTask) -> float:
        """Of its edges, those whose rows are there."""
        setup = self._setup
        schedule = setup.training if what.task.lane == "train" else setup.evaluation
        sources = self._sources[schedule[what.task.stage.reads[0]].direction]
        return sources.index(what.until) / len(sources)


def _begins(work: Work) -> bool:
    """Not where edges are dense, nor attention forth."""
    return work.gathers and not work.visit and not (work.heads and not work.back)
