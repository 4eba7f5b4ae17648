"""Track: how far the intervals of one graph server are in one lane, and what each may run next."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from siafu.pipeline.ahead import Ahead
from siafu.pipeline.front import Front
from siafu.pipeline.ids import Anchor, Epoch, IntervalId, LaneName, ServerId, StageId, Version
from siafu.pipeline.instructions import BeginTask, Instruction, RunTask
from siafu.pipeline.layout import Layout
from siafu.pipeline.schedule import Schedule
from siafu.pipeline.task import Task

Position = tuple[int, int]
"""An epoch and a stage of it: all before that is done."""

_NEVER = -1


@dataclass(slots=True)
class _Pass:
    """An interval's way through one epoch.

    epoch:   the one it is in; where it is not inside, the one it wants to enter
    stage:   the stage that it runs or waits for
    missing: how many intervals' rows, or sums over rows, the stage waits for
    oldest:  the oldest epoch whose rows that gather takes
    """

    interval: IntervalId
    epoch: Epoch
    version: Version
    weights: ServerId
    stage: int = 0
    inside: bool = False
    running: bool = False
    missing: int = 0
    oldest: int = 0

    @property
    def position(self) -> Position:
        return (self.epoch, self.stage)


@dataclass(slots=True)
class Track:
    """The intervals of one graph server in one lane.

    oldest_read: of a gather's epoch, the oldest epoch whose rows it may read
    barrier:     no stage beyond this position may run (sync); None: no barrier
    parts:       into how many parts a gather may be cut that begins before all its rows are there; 0: it waits
    ages:        how often a gather read rows that were so many epochs older than itself
    """

    lane: LaneName
    schedule: Schedule
    layout: Layout
    intervals: tuple[IntervalId, ...]
    start: Epoch
    oldest_read: Callable[[Epoch], int]
    barrier: Position | None = None
    parts: int = 0
    ages: Counter[int] = field(default_factory=Counter)
    passes: dict[IntervalId, _Pass] = field(init=False)
    _at: Counter[Position] = field(init=False)
    _rows: dict[StageId, list[int]] = field(init=False)
    _waiting: dict[tuple[StageId, IntervalId], list[_Pass]] = field(init=False, default_factory=dict)
    _fronts: dict[StageId, Front] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.passes = {
            interval: _Pass(interval, self.start, Version(0), ServerId(0)) for interval in self.intervals
        }
        self._at = Counter({(self.start, 0): len(self.intervals)})
        self._rows = {
            stage.id: [_NEVER] * self.layout.num_intervals for stage in self.schedule.stages if stage.sends
        }
        if self.parts:
            server = self.layout.owner[self.intervals[0]]
            for source in self._rows:
                if not self.schedule[source].everywhere:
                    order = self.layout.sources(server, self.schedule[source].direction)
                    self._fronts[source] = Front(order, self.parts)

    @property
    def slowest(self) -> Position:
        return min(self._at)

    def enter(
        self,
        interval: IntervalId,
        epoch: Epoch,
        version: Version,
        weights: ServerId,
        out: list[Instruction],
        stage: int = 0,
    ) -> None:
        """Let an interval into an epoch with the version that `weights` holds for it, at a stage: those before are done."""
        entering = self.passes[interval]
        self._move(entering, epoch, stage)
        entering.inside = True
        entering.version, entering.weights = version, weights
        self._try_stage(entering, out)

    def is_running(self, task: Task) -> bool:
        """Whether the result of `task` is waited for: not if it came before, or is of another time."""
        current = self.passes[task.interval]
        return current.running and current.stage == task.stage.id and current.epoch == task.epoch

    def note_ages(self, task: Task) -> None:
        """Count how old the rows are that `task`, which is running, reads now."""
        reader = self.passes[task.interval]
        for source in task.stage.reads:
            rows = self._rows[source]
            for interval in self._sources(reader, source):
                self.ages[task.epoch - rows[interval]] += 1

    def finish(self, task: Task, out: list[Instruction]) -> bool:
        """Take an interval past `task`, which was running. Whether that was the last of its epoch."""
        current = self.passes[task.interval]
        current.running = False
        self._move(current, current.epoch, current.stage + 1)
        if task.stage.sends:
            self.take_rows(task.stage.id, task.interval, task.epoch, out)
        if current.stage < len(self.schedule):
            self._try_stage(current, out)
            return False
        self._move(current, Epoch(current.epoch + 1), 0)
        current.inside = False
        return True

    def _move(self, current: _Pass, epoch: Epoch, stage: int) -> None:
        """Put an interval at a position, and count it there."""
        before = current.position
        self._at[before] -= 1
        if not self._at[before]:
            del self._at[before]
        current.epoch, current.stage = epoch, stage
        self._at[epoch, stage] += 1

    def take_rows(self, stage: StageId, interval: IntervalId, epoch: Epoch, out: list[Instruction]) -> bool:
        """An interval's rows of a stage are there, here. Whether they are newer than those that were."""
        rows = self._rows[stage]
        if epoch <= rows[interval]:
            return False
        rows[interval] = epoch
        waiting = self._waiting.pop((stage, interval), None)
        if waiting:
            for reader in waiting:
                if epoch < reader.oldest:
                    self._waiting.setdefault((stage, interval), []).append(reader)
                    continue
                reader.missing -= 1
                if not reader.missing:
                    self._run(reader, out)
        front = self._fronts.get(stage)
        if front is not None and front.advance(rows, epoch):
            for reader in self.passes.values():
                if reader.missing and self.schedule[reader.stage].reads == (stage,):
                    self._begin(reader, out)
        return True

    def has_rows(self, stage: StageId, interval: IntervalId, epoch: Epoch) -> bool:
        """Whether an interval's rows of a stage that are here are of an epoch."""
        return self._rows[stage][interval] == epoch

    def adopt(self, ahead: Ahead) -> None:
        """Rows that an eager copy made and got are there."""
        for stage, interval in ahead.rows:
            self._rows[stage][interval] = ahead.at.epoch

    def ahead(self, at: Anchor) -> Ahead:
        """Results of an epoch that are there; this track has the first stages alone."""
        stages = len(self.schedule)
        done = {
            each.interval: stages if each.epoch > at.epoch else each.stage for each in self.passes.values()
        }
        there = {
            (stage, IntervalId(interval))
            for stage, rows in self._rows.items()
            for interval, epoch in enumerate(rows)
            if epoch == at.epoch
        }
        return Ahead(at, done, frozenset(there))

    def made(self, epoch: Epoch) -> list[tuple[StageId, IntervalId]]:
        """The rows of an epoch that this server's intervals have made: of which stages, of which intervals."""
        return [
            (stage, interval)
            for stage, rows in self._rows.items()
            for interval in self.intervals
            if rows[interval] == epoch
        ]

    def has_passed(self, epoch: Epoch, stage: StageId, interval: IntervalId) -> bool:
        """Whether an interval of this server has done a stage of an epoch."""
        return self.passes[interval].position > (epoch, stage)

    def raise_barrier(self, barrier: Position, out: list[Instruction]) -> None:
        """Let the stages up to `barrier` run."""
        self.barrier = barrier
        for each in self.passes.values():
            if each.inside and not each.running and not each.missing:
                self._try_stage(each, out)

    def waiting(self) -> list[str]:
        """Pending work and its causes, in words; epochs are counted from 1."""
        return [self._describe(each) for each in self.passes.values() if each.inside]

    def validate(self) -> None:
        """Raise AssertionError where the state contradicts itself."""
        missed: dict[IntervalId, int] = {}
        for (stage, interval), readers in self._waiting.items():
            made = self._rows[stage][interval]
            for reader in readers:
                missed[reader.interval] = missed.get(reader.interval, 0) + 1
                assert made < reader.oldest, f"{reader} waits for rows that are there"
        positions: dict[Position, int] = {}
        end, barrier = len(self.schedule), self.barrier
        for each in self.passes.values():
            position = each.position
            positions[position] = positions.get(position, 0) + 1
            assert each.epoch >= self.start, f"{each} is in an epoch before the first"
            listed = missed.get(each.interval, 0)
            assert each.missing == listed, f"{each} is in the lists of {listed}"
            assert each.inside or not (each.running or each.missing or each.stage), f"{each} is outside"
            assert not (each.running and each.missing), f"{each} runs without its rows"
            assert each.stage < end, f"{each} is past the last stage"
            beyond = barrier is not None and each.running and position > barrier
            assert not beyond, f"{each} runs beyond the barrier at {barrier}"
        for source, front in self._fronts.items():
            front.validate(self._rows[source])
        assert dict(self._at) == positions, f"{self._at} are counted, and are {positions}"

    def _try_stage(self, current: _Pass, out: list[Instruction]) -> None:
        if self.barrier is not None and current.position > self.barrier:
            return
        stage = self.schedule[current.stage]
        for source in stage.reads:
            self._await_rows(current, source, self._sources(current, source))
        for source in stage.totals:
            self._await_totals(current, source)
        if not current.missing:
            self._run(current, out)
        elif self._fronts:
            self._begin(current, out)

    def _await_totals(self, reader: _Pass, source: StageId) -> None:
        """Statistics are of all vertices: an interval waits for the sums of every other."""
        self._await_rows(reader, source, self.layout.everyone)

    def _await_rows(self, reader: _Pass, source: StageId, intervals: frozenset[IntervalId]) -> None:
        reader.oldest = self.oldest_read(reader.epoch)
        rows = self._rows[source]
        for interval in intervals:
            if rows[interval] < reader.oldest:
                reader.missing += 1
                self._waiting.setdefault((source, interval), []).append(reader)

    def _sources(self, reader: _Pass, source: StageId) -> frozenset[IntervalId]:
        return self.layout.read_by(self.schedule[source], reader.interval)

    def _run(self, current: _Pass, out: list[Instruction]) -> None:
        stage = self.schedule[current.stage]
        current.running = True
        out.append(
            RunTask(Task(self.lane, current.epoch, stage, current.interval), current.version, current.weights)
        )

    def _begin(self, reader: _Pass, out: list[Instruction]) -> None:
        """Let a gather that waits begin with the rows that are there."""
        stage = self.schedule[reader.stage]
        if stage.kind.begins and len(stage.reads) == 1 and stage.reads[0] in self._fronts:
            until = self._fronts[stage.reads[0]].missing(reader.epoch)
            if until is not None:
                out.append(BeginTask(Task(self.lane, reader.epoch, stage, reader.interval), until))

    def _describe(self, current: _Pass) -> str:
        task = Task(self.lane, current.epoch, self.schedule[current.stage], current.interval)
        if current.running:
            return f"{task} runs"
        if not current.missing:
            assert self.barrier is not None
            epoch, stage = self.barrier
            return f"{task} waits for the barrier at epoch {epoch + 1}, stage {stage}"
        sources = sorted({i for (_, i), readers in self._waiting.items() if current in readers})
        return f"{task} waits for rows of epoch {current.oldest + 1} from intervals {sources}"
