"""RunLosses: how a run begins, and what it does about servers that are lost."""

from siafu.pipeline.events import (
    Begin,
    Noted,
    Ready,
    Resume,
    ServerGone,
    TakenOver,
)
from siafu.pipeline.ids import Address, Incarnation, Life
from siafu.pipeline.instructions import (
    Instruction,
    Replace,
    Rewind,
    Send,
)
from siafu.pipeline.run_machine.run_copies import RunCopies


class RunLosses(RunCopies):
    """A run's beginning, and its losses.

    Within an exact epoch another takes a lost server's place: it stands ready, all others are told and send again what it
    needs, and it goes on. The others go on meanwhile, and close nothing. Else all begin again at the end of the last epoch
    that is closed or, where none closes, at the last checkpoint.
    """

    def _begin_again(self, out: list[Instruction]) -> None:
        self.fences.begin(Incarnation(self.fences.incarnation + 1), self.fences.lives)
        self._reset()
        exact, again = self._exact is not None, self._evaluations.started()
        begin = Begin(self.fences.incarnation, self._base, exact, again, self.fences.lives)
        out.extend(Send(to, begin) for to in self._servers)

    def _lose(self, event: ServerGone, out: list[Instruction]) -> None:
        """A server is lost: go on within the open epoch, or begin again where epochs are closed, or at the last checkpoint."""
        life = Life(event.life + 1)
        self._handing_over.discard(event.server)
        self.fences.raise_to(event.server, life)
        if self.setup.resumes:
            self._replace(event.server, life, out)
            return
        if self._closing is None:
            self._begin_records()
        else:
            self._closing.begin_again()
            self._records.forget_open()
            if not self.setup.exact:
                self._forget_evaluation()
        out += [Rewind(self._records.recorded, self._closing is None), Replace(event.server, life)]
        self._begin_again(out)

    def _forget_evaluation(self) -> None:
        """The version of an evaluation is lost with what holds it, and so is a best model that is on its way: do it again."""
        self._evaluations.running = None
        if self._best_on_its_way is not None:
            self._records.take_back(self._best_on_its_way)

    def _hand_over(self, out: list[Instruction]) -> None:
        """An epoch is closed: others take the places of servers as if these were lost, and nothing is done again."""
        for server in sorted(self._handing_over, key=str):
            self._lose(ServerGone(server, self.fences.life(server)), out)

    def _replace(self, server: Address, life: Life, out: list[Instruction]) -> None:
        """Let another do again what a lost server did of the open epoch. The others go on, and close nothing meanwhile."""
        assert self._closing is not None
        if server.role == "graph":
            self._records.forget(server.index)
        else:
            self._closing.lose(server.index)
        self._succession.lose(server)
        again = self._evaluations.started()
        resume = Resume(self.fences.incarnation, self._closing.anchor, True, again, self.fences.lives)
        out += [Replace(server, life, within=True), Send(server, resume)]

    def _ready(self, event: Ready, out: list[Instruction]) -> None:
        if event.sender.role == "copy":
            self._copy_ready(event)
            return
        if not self._succession.ready(event.sender):
            self.duplicates += 1
            return
        if self._succession.unready:
            return
        if self._succession.joined:
            self._tell_joined(out)
        elif (again := self._evaluations.started()) is not None:
            out.extend(Send(to, again) for to in self.setup.graph_addresses)

    def _tell_joined(self, out: list[Instruction]) -> None:
        """All stand ready: tell everyone who has taken a lost server's place."""
        assert self._closing is not None
        running = self._evaluations.running
        epoch = None if running is None else running.epoch
        for joined, other in self._succession.tell(self._servers):
            life = self.fences.life(joined)
            out.append(Send(other, TakenOver(joined, life, self._closing.anchor, epoch)))
        self._let_join(out)

    def _noted(self, event: Noted, out: list[Instruction]) -> None:
        late = event.life != self.fences.life(event.server)
        if late or not self._succession.noted(event.server, event.sender):
            self.duplicates += 1
            return
        self._let_join(out)

    def _let_join(self, out: list[Instruction]) -> None:
        """Let those go on that everyone knows of: tell them what their predecessors were told since the last close."""
        assert self._closing is not None
        running = self._evaluations.running
        for server in self._succession.go_on():
            if server.role == "graph":
                self._tell_of_copies(server, out)
                if self._until > self._closing.anchor.epoch:
                    out.append(Send(server, self._may_proceed()))
                if (again := self._evaluations.started()) is not None:
                    out.append(Send(server, again))
                continue
            self._send_rates(self._closing.anchor.epoch, self._until, [server.index], out)
            if running is not None and running.version is None and running.weights == server.index:
                out.append(self._evaluations.ask(running.epoch, self._base, self._exact))
            if self._standing.settle is not None and server.index in self._standing.unsettled:
                out.append(Send(server, self._standing.settle))
