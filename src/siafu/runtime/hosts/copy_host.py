"""CopyHost: drives the machine of an eager copy, which runs a graph server's forward tasks beforehand."""

from torch import Tensor

from siafu.pipeline.events import Begin, RowsArrived, RunAhead, TaskDone
from siafu.pipeline.graph_copy import GraphCopy
from siafu.pipeline.instructions import Abandon, Instruction, KeepResult, KeepRows, RunTask, Send
from siafu.runtime.executor import Executor
from siafu.runtime.hosts.host import Host, Watch, unwatched
from siafu.runtime.hosts.weight_host import WEIGHT
from siafu.runtime.letter import Letter
from siafu.runtime.post import Post


class CopyHost(Host):
    """One eager copy. Rows of the next epoch wait until that epoch has begun here, and no task of the one before runs."""

    def __init__(self, machine: GraphCopy, post: Post, executor: Executor, watch: Watch = unwatched) -> None:
        super().__init__(machine.address, machine, post, watch)
        self._copy, self._executor = machine, executor
        self._weights: dict[str, Tensor] = {}
        self._early: list[Letter] = []

    def _take(self, letter: Letter) -> None:
        if isinstance(letter.event, RunAhead) and self._copy.is_early(letter.event):
            self._weights = letter.owned(WEIGHT)

    def _pass_on(self, letter: Letter) -> None:
        match letter.event:
            case Begin() | RunAhead():
                self._begin(letter)
            case RowsArrived() as rows if self._copy.is_early(rows):
                self._early.append(letter)
            case event:
                self.deliver(event, letter)

    def _begin(self, letter: Letter) -> None:
        """Begin an epoch. From now on nothing of an earlier one may be written to the tables."""
        self._executor.halt()
        self.deliver(letter.event, letter)
        self._executor.resume()
        early, self._early = self._early, []
        for each in early:
            self._pass_on(each)

    def _obey(self, what: Instruction, came: Letter) -> None:
        match what:
            case Send():
                self.send(what.to, what.message)
            case RunTask():
                self._run(what)
            case KeepResult():
                self._executor.keep_result(what.task)
            case KeepRows():
                self._executor.keep_rows(what, came)
            case Abandon():
                self._executor.abandon()
            case _:
                raise NotImplementedError(f"an eager copy cannot {what}")

    def _run(self, what: RunTask) -> None:
        stamp = self._copy.fences.stamp(self.address)
        self._executor.run(
            what,
            self._weights,
            lambda: None,
            lambda done: self.deliver(TaskDone(what.task), stamp=stamp),
        )
