"""RunCopies: eager copies of a run's graph servers: which there are, and what they are told."""

from siafu.pipeline.events import Begin, CopyGone, CopyMade, CopyStands, Ready, RunAhead
from siafu.pipeline.ids import Address, Epoch
from siafu.pipeline.instructions import Instruction, Send
from siafu.pipeline.run_machine.run_basis import RunBasis


class RunCopies(RunBasis):
    """A run's eager copies. The run waits for none of them.

    A copy that has begun is used from the next epoch on: graph servers are told of it, and it is told of every epoch that
    they may enter.
    """

    def _copy_made(self, event: CopyMade, out: list[Instruction]) -> None:
        known = self._copies.get(event.copy)
        if self.setup.ahead is None or self._closing is None or (known is not None and known >= event.life):
            self.duplicates += 1
            return
        self._copies[event.copy] = event.life
        self._copies_ready.discard(event.copy)
        self.fences.raise_to(event.copy, event.life)
        begin = Begin(self.fences.incarnation, self._closing.anchor, True, None, self.fences.lives)
        out.append(Send(event.copy, begin))

    def _copy_ready(self, event: Ready) -> None:
        if event.sender in self._copies:
            self._copies_ready.add(event.sender)

    def _copy_gone(self, event: CopyGone, out: list[Instruction]) -> None:
        if self._copies.get(event.copy) != event.life:
            self.duplicates += 1
            return
        self._copies_ready.discard(event.copy)
        if self._copies_told.pop(event.copy, None) is not None:
            self._tell(CopyStands(event.copy, event.life, there=False), out)

    def _run_ahead(self, epoch: Epoch, out: list[Instruction]) -> None:
        """Servers may enter an epoch: so may the copies, and servers are told of those that are new."""
        assert self._closing is not None
        for copy in sorted(self._copies_ready, key=str):
            life = self._copies[copy]
            if self._copies_told.get(copy) != life:
                self._copies_told[copy] = life
                self._tell(CopyStands(copy, life), out)
            out.append(Send(copy, RunAhead(epoch, self._closing.anchor.version_of(epoch))))

    def _tell_of_copies(self, server: Address, out: list[Instruction]) -> None:
        """Tell one that takes a lost server's place."""
        told = sorted(self._copies_told.items(), key=lambda each: str(each[0]))
        out.extend(Send(server, CopyStands(copy, life)) for copy, life in told)

    def _tell(self, message: CopyStands, out: list[Instruction]) -> None:
        out.extend(Send(to, message) for to in self.setup.graph_addresses)
