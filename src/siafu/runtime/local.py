"""LocalRuntime: all servers of a run in this process, on one pool of threads; letters go by reference."""

import queue
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from siafu.base.activity import About
from siafu.base.errors import SiafuError
from siafu.pipeline.graph_server import GraphServer
from siafu.pipeline.ids import RUN, ServerId, Version
from siafu.pipeline.run_machine.run import RunMachine
from siafu.pipeline.setup import Setup
from siafu.pipeline.weight_server import WeightServer
from siafu.runtime.counters.server_activity import ServerActivity
from siafu.runtime.executor import SOON, ThreadExecutor
from siafu.runtime.happenings import EpochRecord, Happening, Outcome, Snapshot
from siafu.runtime.hosts.graph_host import GraphHost
from siafu.runtime.hosts.run_host import RunHost
from siafu.runtime.hosts.weight_host import Updates, WeightHost
from siafu.runtime.one_thread import one_thread
from siafu.runtime.pool import After, Job, Pool
from siafu.runtime.post import LocalPost
from siafu.runtime.story import STANDS_STILL, Story, stuck
from siafu.server.worker import GraphWorker
from siafu.weights.store import WeightStore

if TYPE_CHECKING:
    from siafu.runtime.lambdas import Lambdas

LOOK_SECONDS = 5.0
"""How long nothing may be heard of a run until somebody looks whether it stands still."""


class LocalRuntime:
    """Drives a run in this process; `events` gives what happens, as it happens.

    workers:   the graph servers' rows
    stores:    the weight servers' tensors
    start:     the weights and the optimizer's state to start from
    lambdas:   run tensor tasks; None: threads do
    checkpoint_due: called after every epoch: whether to make a checkpoint
    traced:    whether records tell of every task

    story:     events of the machines
    """

    def __init__(
        self,
        setup: Setup,
        run: RunMachine,
        workers: tuple[GraphWorker, ...],
        stores: tuple[WeightStore, ...],
        start: Snapshot,
        *,
        threads: int,
        lambdas: "Lambdas | None" = None,
        checkpoint_due: Callable[[], bool] = lambda: False,
        traced: bool = False,
    ) -> None:
        self._happened: queue.SimpleQueue[Happening | BaseException | None] = queue.SimpleQueue()
        self.story = Story()
        self._lambdas = None
        if lambdas is not None:
            from siafu.runtime.lambda_tasks import LambdaTasks

            dtype = next(each.dtype for each in start.weights.values() if each.is_floating_point())
            self._lambdas = LambdaTasks(
                lambdas,
                setup.layout.num_intervals,
                dtype,
                self._soon,
                self._happened.put,
                self.story.note_lambdas,
            )
        watch = None if self._lambdas is None else self._lambdas.watch_queue
        self._pool = Pool(threads, self._happened.put, watch)
        if traced:
            self._pool.activity.keep_spans()
        self._post, self._workers = LocalPost(), workers
        self._graph = graph = [self._graph_host(setup, worker) for worker in workers]
        weight = [self._weight_host(setup, ServerId(server), store) for server, store in enumerate(stores)]
        servers = [each.address for each in (*graph, *weight)]
        self._run = RunHost(
            run,
            self._post.of(RUN),
            servers,
            start,
            self._happened.put,
            threads=threads,
            activity=self._pool.activity,
            traced=traced,
            checkpoint_due=checkpoint_due,
            watch=self.story.note,
        )
        self._hosts = (self._run, *graph, *weight)
        for host in self._hosts:
            self._post.meet(host.address, host.hear)

    def _graph_host(self, setup: Setup, worker: GraphWorker) -> GraphHost:
        machine = GraphServer(setup, worker.server)
        executor = ThreadExecutor(setup, worker.server, worker, self._pool, self._lambdas)
        # All servers share the Lambdas: one of them tells of them all.
        own = self._lambdas if worker.server == 0 else None
        # They share a scratch directory, too.
        disk = worker.disk.scratch.traffic if worker.server == 0 and worker.disk is not None else None
        post, activity = self._post.of(machine.address), ServerActivity(None, own, disk)
        return GraphHost(machine, post, executor, activity, own, self.story.note)

    def _weight_host(self, setup: Setup, server: ServerId, store: WeightStore) -> WeightHost:
        machine = WeightServer(setup, server)
        updates = self._updates(str(machine.address))
        return WeightHost(machine, self._post.of(machine.address), store, updates, self.story.note)

    def _updates(self, name: str) -> Updates:
        def update(version: Version, make: Callable[[], None], then: Callable[[], None]) -> None:
            def job() -> After:
                make()
                # Who held the version before lets go of it first: there are never more at once than in use.
                return After(lambda: self._post.when_quiet(then))

            self._pool.add(SOON, "update", job, About(name, self._run.recorded))

        return update

    def _soon(self, kind: str, job: Job, about: About) -> None:
        self._pool.add(SOON, kind, job, about)

    def events(self) -> Iterator[Happening]:
        """Run; every epoch's record, every checkpoint asked for, and last the outcome.

        Close the iterator to stop the run at once.
        """
        with one_thread():
            try:
                self._pool.start()
                if self._lambdas is not None:
                    self._lambdas.start()
                self._run.begin()
                yield from self._until_outcome()
            finally:
                self._post.close()
                self._pool.close()
                if self._lambdas is not None:
                    self._lambdas.stop()
                for worker in self._workers:
                    worker.close()

    def _until_outcome(self) -> Iterator[Happening]:
        handled_before = -1
        while True:
            try:
                happened = self._happened.get(timeout=LOOK_SECONDS)
            except queue.Empty:
                handled_before = self._look(handled_before)
                continue
            if isinstance(happened, BaseException):
                raise happened
            if happened is None:
                self._run.stop_if_wanted()
                continue
            yield happened
            if isinstance(happened, Outcome):
                return

    def _look(self, handled_before: int) -> int:
        """Raise an error if nothing is under way; returns the number of events handled so far.

        Only a job in the pool, a task on Lambdas or a report that waits for receipts leads to an event. If there is none
        of them twice, and no event in between, there will never be an event.
        """
        handled = sum(each.events for each in self._hosts)
        if handled != handled_before or self._run.over or self._is_under_way():
            return handled
        raise SiafuError(
            stuck(
                STANDS_STILL,
                self.story,
                self.waiting(),
            )
        )

    def _is_under_way(self) -> bool:
        if any(each.reporting for each in self._graph):
            return True
        # Twice, since a task goes from the pool to the Lambdas and back.
        on_lambdas = self._lambdas is not None and self._lambdas.are_out
        busy = on_lambdas or not self._pool.is_idle
        return busy or (self._lambdas is not None and self._lambdas.are_out)

    def waiting(self) -> list[str]:
        """Events that machines wait for, in words."""
        letters = [f"post: {count} letters are not carried"] if (count := self._post.num_waiting) else []
        machines = [line for host in self._hosts for line in host.waiting()]
        return machines + letters

    def stop_soon(self) -> None:
        """End the run at an epoch's end, at most two later, after a checkpoint. May be called from a signal's handler."""
        # Who reads what happened may be behind by many epochs: the flag stops the run all the same.
        self._run.stop_at_epoch()
        self._happened.put(None)

    def close_epoch(self, record: EpochRecord, *, stop: bool) -> None:
        """The record of an epoch was seen: the next may begin, or the run ends."""
        self._run.close_epoch(record, stop)

    def counters(self) -> dict[str, Any]:
        """Counters of this session, as of the last checkpoint or the end."""
        return self._run.counters()
