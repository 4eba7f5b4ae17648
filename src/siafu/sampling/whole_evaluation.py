"""WholeEvaluation: exact evaluations over the whole graph, by the stages that other modes run."""

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from torch import Tensor

from siafu.base.activity import About, Activity
from siafu.pipeline.events import Measures
from siafu.pipeline.ids import Epoch, IntervalId, LaneName
from siafu.pipeline.task import Task
from siafu.runtime.one_thread import one_thread, record_nothing, use_one_thread
from siafu.sampling.batch_loader import SERVER
from siafu.server.assembly import assemble
from siafu.server.plan import ServerPlan
from siafu.server.worker import GraphWorker
from siafu.tables import DiskTraffic

_LANE: LaneName = "evaluate"


class WholeEvaluation:
    """Evaluates weights; its tables are held as long as it is.

    plan: of a pass that trains nothing, on one server
    """

    def __init__(self, plan: ServerPlan, activity: Activity, *, threads: int) -> None:
        self._plan, self._activity, self._threads = plan, activity, threads
        with one_thread():  # what is folded has the same bits wherever it is made
            (self._worker,) = assemble(plan.blueprint(), plan.features, plan.weights).workers
        self._pool = ThreadPoolExecutor(threads, "siafu-evaluate", initializer=_begin)

    @property
    def traffic(self) -> DiskTraffic | None:
        """Bytes to and from scratch files; None: no table is there."""
        disk = self._worker.disk
        return None if disk is None else disk.scratch.traffic

    @property
    def worker(self) -> GraphWorker:
        return self._worker

    def run(self, weights: Mapping[str, Tensor], epoch: Epoch) -> Measures:
        """Measures of all intervals, added up in their order."""
        total: list[Measures] = []
        for stage in self._plan.schedules[_LANE].stages:
            tasks = [
                Task(_LANE, epoch, stage, IntervalId(each)) for each in range(self._plan.interval_counts[0])
            ]
            began = time.perf_counter()
            total = [each.result() for each in [self._pool.submit(self._run, one, weights) for one in tasks]]
            self._activity.note(About(SERVER, epoch), f"evaluate {stage}", 0, began, time.perf_counter())
        return tuple(map(sum, zip(*(each for each in total if each), strict=True)))

    def _run(self, task: Task, weights: Mapping[str, Tensor]) -> Measures:
        return self._worker.run(task, weights).measures

    def close(self) -> None:
        """Let go of threads and of tables on disk."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._worker.close()


def _begin() -> None:
    use_one_thread()
    record_nothing()
