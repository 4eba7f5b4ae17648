"""WeightServer: the machine that keeps the versions of the weights and makes its part of new ones."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from siafu.pipeline.events import (
    Begin,
    BestKept,
    Closed,
    EvaluationStarted,
    Event,
    GradientArrived,
    GradientTaken,
    NormsTold,
    Noted,
    RatesSet,
    Ready,
    Resume,
    RoomMade,
    Settle,
    Settled,
    StateMade,
    TakenOver,
    UpdateDone,
    UpdateDue,
    WeightsAsked,
    WeightsGranted,
    WeightsMade,
    WeightsReleased,
)
from siafu.pipeline.gradients import Gradients
from siafu.pipeline.holding import OpenVersions, PinnedVersions
from siafu.pipeline.ids import (
    FIRST_LIFE,
    RUN,
    Address,
    Anchor,
    Epoch,
    IntervalId,
    Life,
    PhaseId,
    ServerId,
    Version,
)
from siafu.pipeline.instructions import (
    FreeWeights,
    Instruction,
    KeepBest,
    KeepWeights,
    Restore,
    Send,
    TellNorms,
    Update,
)
from siafu.pipeline.setup import Setup
from siafu.pipeline.stamp import Fences


def _name(interval: IntervalId | None) -> str:
    return "the evaluation" if interval is None else f"interval {interval}"


@dataclass(slots=True)
class WeightServerCounts:
    """What a weight server saw.

    gradients:     how many were taken
    versions_peak: the most complete versions that were held at once
    duplicates:    events that had come before, or came too late to matter
    """

    gradients: int = 0
    versions_peak: int = 0
    duplicates: int = 0


class WeightServer:
    """One weight server's part in a run.

    Each server is the home of some phases: it gathers their gradients, makes its part of the next version and sends it
    to the others. A version is complete on a server when all parts are there; the latest complete one is what
    those that enter an epoch are given, here, to hold until their gradients are delivered.

    How a policy that bounds the versions is kept with several servers: each tells the homes up to which version it has
    room (`RoomMade`), and a version is made only when all have. The oldest version in use on a server never falls,
    since only its latest is given out, so what it told stays true. Where one version is all there is, a server has
    room when no one holds a version and no one will be given one: homes ask for that by `UpdateDue`.
    """

    def __init__(self, setup: Setup, server: ServerId, life: Life = FIRST_LIFE) -> None:
        self.setup = setup
        self.server = server
        self.address = Address("weight", server)
        self.counts = WeightServerCounts()
        self.fences = Fences(self.address, life)
        self._others = [ServerId(other) for other in range(setup.weight_servers) if other != server]
        self._phases = tuple(phase for phase, home in setup.homes.items() if home == server)
        self._handlers: dict[type[Event], Callable[[Any, list[Instruction]], None]] = {
            WeightsAsked: self._weights_asked,
            WeightsReleased: self._weights_released,
            GradientArrived: self._gradient_arrived,
            UpdateDone: self._update_done,
            WeightsMade: self._weights_made,
            UpdateDue: self._update_due,
            RoomMade: self._room_made,
            Settle: self._settle,
            RatesSet: self._rates_set,
            NormsTold: self._norms_told,
            TakenOver: self._taken_over,
            Closed: self._close,
        }
        self._reset(Anchor(Epoch(0), Version(0)), setup.exact)

    def handle(self, event: Event) -> list[Instruction]:
        out: list[Instruction] = []
        if isinstance(event, Begin):
            self._begin(event, out)
        else:
            self._handlers[type(event)](event, out)
        return out

    def waiting(self) -> list[str]:
        """Pending work and its causes, in words; epochs are counted from 1."""
        state = f"has made {self._made}, holds {sorted(self._held)}, latest {self._latest}, room {self._room}"
        asked = [
            f"{_name(each.interval)} waits for version {self._wanted(each)}, for epoch {each.epoch + 1}"
            for each in self._queue
        ]
        pins = [
            f"{_name(interval)} holds version {version} for epoch {epoch + 1}"
            for (interval, epoch), version in self._pinned.pins.items()
        ]
        closed = ["closed until a version is made"] if self._closed else []
        return [f"{self.address}: {line}" for line in [state, *asked, *pins, *closed]]

    def validate(self) -> None:
        """Raise AssertionError where the state contradicts itself. Tests call it after every event."""
        complete = {version for version in self._held if self._is_complete(version)}
        assert max(complete) == self._latest, f"latest {self._latest}, complete {complete}"
        self._pinned.validate()
        uses = set(self._pinned.uses)
        assert uses <= complete, f"versions in use {uses}, complete {complete}"
        needs = self._pinned.needs if self._open is None else self._open.needs
        unused = [version for version in self._held if version < self._latest and not needs(version)]
        assert not unused, f"versions {unused} are held for no one"
        most = 3 if self._open is not None else self.setup.policy.max_versions
        assert most is None or len(complete) <= most, f"{complete} are held, and {most} may be"
        own = [version for version, parts in self._held.items() if self.server in parts]
        assert max(own, default=self._made) <= self._made, (
            f"has made {self._made}, and holds its own of {own}"
        )
        assert not self._updating or self._gradients.complete(Version(self._made + 1)), "made of too little"
        room = self._room.get(self.server, self._latest)
        assert room <= self._latest + 1, f"has room for {room}, latest {self._latest}"
        for each in self._queue:
            assert self._asked[each.interval] == each.epoch, f"{each} waits, and asked again since"
            assert (each.interval, each.epoch) not in self._pinned.pins, f"{each} waits for what it has"
        settling = self._settling
        assert settling is None or self._latest < settling.anchor.version, f"{settling} has settled"

    def _begin(self, event: Begin, out: list[Instruction]) -> None:
        self.fences.begin(event.incarnation, event.lives)
        self._reset(event.start, event.exact)
        held = None if event.evaluation is None else self._hold_for(event.evaluation)
        out.append(Restore(event.start.epoch, event.start.version, held))
        out.append(Send(RUN, Ready(self.address)))
        if isinstance(event, Resume) and self._phases:
            # The one before may have been lost with these on their way.
            self._share(event.start.version, self._others, out)

    def _reset(self, start: Anchor, exact: bool) -> None:
        setup = self.setup
        self._gradients = Gradients(
            self._phases, setup.layout.num_intervals, setup.update_every, start, exact
        )
        self._start = start
        self._made = self._latest = self._due = start.version
        self._updating = False
        self._held: dict[Version, set[ServerId]] = {start.version: set(setup.parts)}
        self._pinned = PinnedVersions()
        self._open = OpenVersions(start.version) if setup.exact else None
        self._asked: dict[IntervalId | None, Epoch] = {}
        self._queue: list[WeightsAsked] = []
        self._settling: Settle | None = None
        self._settled: tuple[int, bool] = (-1, False)
        self._room = self._room_at(start.version)
        self._rates: dict[Version, tuple[float, ...]] = {}
        self._norms: dict[Version, dict[ServerId, tuple[tuple[int, float], ...]]] = {}
        self._own_norms: NormsTold | None = None
        self._measured = start.version

    def _hold_for(self, evaluation: EvaluationStarted) -> Version | None:
        """An evaluation of an exact run is run again: hold its version. None: that is held anyway."""
        assert self._open is not None, "asynchronous runs begin again without one"
        version = self._open.held = evaluation.version
        if evaluation.weights == self.server:
            self._asked[None] = evaluation.epoch
        if version == self._latest:
            return None
        self._held[version] = set(self.setup.parts)
        return version

    def _room_at(self, version: Version) -> dict[ServerId, Version]:
        """How far every server has room when none has given anything out; {}: no bound is kept.

        Where epochs close there are two versions, and perhaps an evaluation's: that needs no bound.
        """
        policy = self.setup.policy
        if policy.max_versions is None or self.setup.exact:
            return {}
        room = Version(version + 1) if policy.may_update(version, {version}) else version
        return {ServerId(each): room for each in range(self.setup.weight_servers)}

    # Giving versions out

    def _weights_asked(self, event: WeightsAsked, out: list[Instruction]) -> None:
        # Each asks for its epochs in order: one that is not later came before, and may be released long since.
        if event.epoch <= self._asked.get(event.interval, -1):
            self.counts.duplicates += 1
            return
        self._asked[event.interval] = event.epoch
        if not self._try_grant(event, out):
            self._queue.append(event)

    def _try_grant(self, asked: WeightsAsked, out: list[Instruction]) -> bool:
        if asked.version is None and self._updating:
            return False  # a newer one is being made this moment
        version = self._wanted(asked)
        if not self._is_complete(version) or (version == self._latest and self._closed):
            return False
        if self._open is None:
            self._pinned.hold((asked.interval, asked.epoch), version)
        load = len(self._pinned.pins)
        granted = WeightsGranted(self.server, asked.interval, asked.epoch, version, load)
        out.append(Send(asked.sender, granted))
        return True

    def _grant_waiting(self, out: list[Instruction]) -> None:
        self._queue = [asked for asked in self._queue if not self._try_grant(asked, out)]

    def _wanted(self, asked: WeightsAsked) -> Version:
        if asked.version is not None:
            return asked.version
        return self._latest if asked.oldest is None else max(self._latest, asked.oldest)

    def _is_complete(self, version: Version) -> bool:
        return len(self._held.get(version, ())) == len(self.setup.parts)

    @property
    def _closed(self) -> bool:
        """Whether no one may enter on the latest version, because the next one waits for it to be free."""
        return bool(self._room) and not self.setup.policy.may_enter(self._due > self._latest)

    def _weights_released(self, event: WeightsReleased, out: list[Instruction]) -> None:
        version = self._pinned.release((event.interval, event.epoch))
        if version is None:
            self.counts.duplicates += 1
            return
        if event.best:
            out.append(KeepBest(event.epoch, version))
            out.append(Send(RUN, BestKept(event.epoch)))
        if not self._pinned.needs(version):
            self._free_unused(out)
            self._look_for_room(out)

    # Making versions

    def _gradient_arrived(self, event: GradientArrived, out: list[Instruction]) -> None:
        accumulated = self._gradients.take(event.epoch, event.phase, event.interval)
        # Who sends it again does not know that it came.
        owner = Address("graph", self.setup.layout.owner[event.interval])
        taken = Send(owner, GradientTaken(event.epoch, event.phase, event.interval))
        if accumulated is None:
            self.counts.duplicates += 1
            out.append(taken)
            return
        self.counts.gradients += 1
        out += [*accumulated, taken]
        self._try_update(out)

    def awaits(self, epoch: Epoch, phase: PhaseId, interval: IntervalId) -> bool:
        """Whether a gradient that came is to be added when it is its turn."""
        return self._gradients.is_early(epoch, phase, interval)

    def _try_update(self, out: list[Instruction]) -> None:
        version = Version(self._made + 1)
        if self._updating or not self._phases or not self._gradients.complete(version):
            return
        if any(room < version for room in self._room.values()):
            self._ask_for_room(version, out)
            return
        if self.setup.paced and version not in self._rates:
            return
        if self.setup.clipped and not self._has_norms(version, out):
            return
        self._updating = True
        found = self._norms.pop(version, {})
        norms = tuple(sorted(each for part in found.values() for each in part))
        out.append(Update(version, self._rates.pop(version, ()), norms))

    def _has_norms(self, version: Version, out: list[Instruction]) -> bool:
        """Whether the norms of all homes' gradients are here; those of this one are told if they were not."""
        if self._measured < version:
            self._measured = version
            out.append(TellNorms(version))
        return self._norms.get(version, {}).keys() == self.setup.parts

    def _rates_set(self, event: RatesSet, out: list[Instruction]) -> None:
        if event.version <= self._made + self._updating or event.version in self._rates:
            self.counts.duplicates += 1
            return
        self._rates[event.version] = event.rates
        self._try_update(out)

    def _norms_told(self, event: NormsTold, out: list[Instruction]) -> None:
        late = event.version <= self._made + self._updating
        if late or event.home in self._norms.get(event.version, ()):
            self.counts.duplicates += 1
            return
        if event.home == self.server:
            self._own_norms = event
        self._norms.setdefault(event.version, {})[event.home] = event.norms
        self._try_update(out)

    def _ask_for_room(self, version: Version, out: list[Instruction]) -> None:
        if self.setup.policy.may_enter(True) or version <= self._due:
            return
        out.extend(Send(Address("weight", other), UpdateDue(version)) for other in self._others)
        self._due = version
        self._look_for_room(out)

    def _update_due(self, event: UpdateDue, out: list[Instruction]) -> None:
        if event.version <= self._due:
            self.counts.duplicates += 1
            return
        self._due = event.version
        self._look_for_room(out)

    def _look_for_room(self, out: list[Instruction]) -> None:
        """Tell the homes when this server can take a further version."""
        if not self._room:
            return
        uses = set(self._pinned.uses)
        used = uses if self._closed else {*uses, self._latest}
        if not self.setup.policy.may_update(self._latest, used) or self._room[self.server] > self._latest:
            return
        room = Version(self._latest + 1)
        self._room[self.server] = room
        homes = sorted(self.setup.parts - {self.server})
        out.extend(Send(Address("weight", home), RoomMade(self.server, room)) for home in homes)
        self._try_update(out)

    def _room_made(self, event: RoomMade, out: list[Instruction]) -> None:
        if event.version <= self._room[event.server]:
            self.counts.duplicates += 1
            return
        self._room[event.server] = event.version
        self._try_update(out)

    def _update_done(self, event: UpdateDone, out: list[Instruction]) -> None:
        if not self._updating or event.version != self._made + 1:
            self.counts.duplicates += 1
            return
        self._updating = False
        self._made = event.version
        self._gradients.forget(event.version)
        self._share(event.version, self._others, out)
        if self.setup.closes:
            out.append(Send(RUN, self._state_made(event.version)))
        self._hold(self.server, event.version, out)
        self._try_update(out)
        self._grant_waiting(out)

    def _state_made(self, version: Version) -> StateMade:
        epochs = version - self._start.version
        gradients = epochs * len(self._phases) * self.setup.layout.num_intervals
        return StateMade(self.server, version, gradients, self.counts.versions_peak)

    def _share(self, version: Version, servers: Iterable[ServerId], out: list[Instruction]) -> None:
        """Send this server's part of a version to others."""
        made = WeightsMade(self.server, version)
        out.extend(Send(Address("weight", other), made) for other in servers)

    # A server is replaced

    def _taken_over(self, event: TakenOver, out: list[Instruction]) -> None:
        if self.fences.raise_to(event.server, event.life):
            if event.server.role == "graph":
                self._forget_asked(event)
            else:
                self._share_again(event, out)
        out.append(Send(RUN, Noted(self.address, event.server, event.life)))

    def _share_again(self, event: TakenOver, out: list[Instruction]) -> None:
        """Send a new weight server what it needs of this one to make the open epoch's version."""
        norms = self._own_norms
        if self._phases and self._made > event.start.version:
            self._share(self._made, [event.server.index], out)
        if norms is not None and norms.version > event.start.version:
            out.append(Send(event.server, norms))

    def _forget_asked(self, event: TakenOver) -> None:
        """Intervals of a lost server will ask for the open epoch's version again."""
        for interval in self.setup.layout.owned(event.server.index):
            if self._asked.get(interval, -1) >= event.start.epoch:
                self._asked[interval] = Epoch(event.start.epoch - 1)
        self._queue = [asked for asked in self._queue if asked.sender != event.server]

    # Holding versions

    def _close(self, event: Closed, out: list[Instruction]) -> None:
        assert self._open is not None
        if event.oldest <= self._open.oldest:
            self.counts.duplicates += 1
            return
        self._open.oldest, self._open.held = event.oldest, event.held
        self._free_unused(out)

    def _weights_made(self, event: WeightsMade, out: list[Instruction]) -> None:
        late = event.version < self._latest and (self._open is None or not self._open.needs(event.version))
        if late or event.home in self._held.get(event.version, ()):
            self.counts.duplicates += 1
            return
        out.append(KeepWeights(event.home, event.version))
        self._hold(event.home, event.version, out)

    def _hold(self, home: ServerId, version: Version, out: list[Instruction]) -> None:
        self._held.setdefault(version, set()).add(home)
        if not self._is_complete(version):
            return
        self._latest = max(self._latest, version)
        self._free_unused(out)
        complete = sum(map(self._is_complete, self._held))
        self.counts.versions_peak = max(self.counts.versions_peak, complete)
        self._grant_waiting(out)
        self._try_settled(out)
        self._look_for_room(out)

    def _free_unused(self, out: list[Instruction]) -> None:
        needs = self._pinned.needs if self._open is None else self._open.needs
        for version in sorted(self._held):
            if version < self._latest and not needs(version):
                del self._held[version]
                out.append(FreeWeights(version))

    def _settle(self, event: Settle, out: list[Instruction]) -> None:
        # At one point twice: first as it was, and then to go on exactly.
        if (event.anchor.epoch, event.exact) <= self._settled:
            self.counts.duplicates += 1
            return
        self._settled = (event.anchor.epoch, event.exact)
        self._settling = event
        self._gradients.settle(event.anchor, event.exact)
        self._try_update(out)
        self._try_settled(out)

    def _try_settled(self, out: list[Instruction]) -> None:
        if self._settling is not None and self._latest >= self._settling.anchor.version:
            out.append(Send(RUN, Settled(self.server, self._settling)))
            self._settling = None
