"""Rows of a lane in memory: tables of gathers, kept rows, labels, and what its tasks hold while they run."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from siafu.kernels import table_row_bytes
from siafu.nn.gathers.pair_softmax import PairSoftmax
from siafu.pipeline.ids import LaneName
from siafu.pipeline.schedule import Stage, fused_gathers
from siafu.pipeline.stage_kind import FUSED
from siafu.program.program import GatherStep
from siafu.program.tensor_program import TensorProgram
from siafu.server.costs.extent import Extent
from siafu.server.costs.held_array import HeldArray
from siafu.server.costs.reduce_cost import sum_bytes
from siafu.server.fused_gathers import ROWS_AT_ONCE
from siafu.server.fusion import frees_rows, gathers_again
from siafu.server.gathers.on_disk.collected_sources import OWN_ROWS
from siafu.server.gathers.registry import behaviour_of, held_by_step
from siafu.server.memory.disk_share import DiskCut, Gathered, buffer_bytes, collected_bytes
from siafu.server.memory.group_counts import group_counts
from siafu.server.memory.memory_list import Allocation, Lifetime
from siafu.server.memory.needed_rows import NeededRows
from siafu.server.memory.server_hardware import ServerHardware
from siafu.server.memory.server_part import ServerPart
from siafu.server.memory.type_counts import type_counts
from siafu.server.plan import ServerPlan
from siafu.server.rows.blocks import block_rows, largest_block
from siafu.server.stages.registry import stages_of
from siafu.tables.pages import PAGE, whole_pages

_ID = 8  # bytes of a vertex's number, and of a label
_ENDS = {"train": "training", "evaluate": "evaluation"}


@dataclass(slots=True)
class LaneRows:
    """What one lane holds on one server.

    stages:     its own, in order
    on_lambdas: tensor tasks run elsewhere, and keep their rows there
    hardware:   the machine that holds it
    lengths:    rows of its intervals; (): not known yet
    """

    plan: ServerPlan
    lane: LaneName
    part: ServerPart
    needed: NeededRows
    extent: Extent
    stages: Sequence[Stage]
    on_lambdas: bool
    hardware: ServerHardware
    lengths: Collection[int] = ()

    def listed(self, there: Mapping[str, int] = MappingProxyType({})) -> Iterator[Allocation]:
        """Everything but the constants and the edges; there: bytes of tables that it uses and another lane has, by name."""
        for array, each in self._held():
            yield replace(each, bytes=max(0, each.bytes - there.get(array.name, 0)))
        yield from self._disk_buffers()
        yield from self._passing()
        yield from self._joined_heads()
        yield from self._added_gradients()
        yield from self._labels()
        yield from self._statistics()

    def on_disk(self) -> Iterator[tuple[Stage, HeldArray]]:
        """Tables that are on disk, and the stages whose they are."""
        cut = self.extent.savings.disk
        if cut is None:
            return
        for stage in self.stages:
            for array in stages_of(stage.kind).held(self.extent, stage):
                sources = array.on_disk == "source" and stage.kind == FUSED and cut.reads(stage.phase - 1)
                if sources or (array.on_disk == "rows" and cut.rows):
                    yield stage, array

    @property
    def _is_guest(self) -> bool:
        """Whether it finds what a training has."""
        return self.plan.trains and not self.extent.training

    def _disk_buffers(self) -> Iterator[Allocation]:
        """Parts of tables on disk that are in memory: one gather runs at a time; back another may gather again beside it."""
        cut = self.extent.savings.disk
        tables = [(stage, each) for stage, each in self.on_disk() if each.on_disk == "source"]
        beside = self.extent.savings.shared and self._is_guest  # it runs while the training does not
        if cut is None or not tables or beside:
            return
        forth = [
            self._buffers(cut, each)
            for _, each in tables
            if each.forward is not None and not each.is_collected
        ]
        by_stage = {stage: [each for other, each in tables if other == stage] for stage, _ in tables}
        forth += [self._collected(cut, arrays, "forward") for arrays in by_stage.values()]
        again = self.extent.training and gathers_again(self.extent.program, self.extent.savings)
        back = [
            sum(self._buffers(cut, each) for each in arrays if not each.is_collected)
            + self._collected(cut, arrays, "forward")
            + self._collected(cut, arrays, "backward")
            for arrays in by_stage.values()
            if any(each.beside for each in arrays)
        ]
        found = max(
            sum(sorted(forth)[-2 if again else -1 :]),
            max(back, default=0) + (max(forth, default=0) if back and again else 0),
        )
        yield Allocation(
            f"{_ENDS[self.lane]}: buffers of tables on disk",
            found,
            Lifetime.EPOCHS,
            f"{cut.groups} groups of sums, {cut.partitions} partitions of sources",
        )

    def _buffers(self, cut: DiskCut, array: HeldArray) -> int:
        """Bytes of one gather from a table while it runs."""
        part, back = self.part, array.rows == "backward"
        types = type_counts(self.plan.graph, part)[back]
        rows, threads = array.bytes(part.rows) // array.row_bytes, self.hardware.threads
        interval = max(self.lengths, default=-(-part.vertices // max(1, min(self.plan.interval_counts))))
        taken = min(ROWS_AT_ONCE, interval)
        apart = min(part.vertices, max(0, threads - 1) * interval + taken)
        gathered = Gathered(part.vertices, types, rows, taken, apart, threads)
        return buffer_bytes(cut, gathered, array, self.extent.itemsize)

    def _collected(self, cut: DiskCut, arrays: Sequence[HeldArray], rows: str) -> int:
        """Bytes of a gather that collects the sources of a group of rows, of all tables of one direction together."""
        sources = [each for each in arrays if each.is_collected and each.rows == rows]
        if not sources:
            return 0
        own = sum(
            table_row_bytes(each.grouped.rows, self.extent.itemsize) for each in sources if each.grouped
        )
        threads = self.hardware.threads * min(OWN_ROWS, self.part.vertices)
        return self._of_sources(cut, sources, rows) + threads * own

    def _of_sources(self, cut: DiskCut, sources: Sequence[HeldArray], rows: str) -> int:
        part, back = self.part, rows == "backward"
        columns = part.rows.backward if back else part.rows.forward
        row_bytes, index = sum(each.row_bytes for each in sources), self.plan.graph.indices.itemsize
        counts = group_counts(self.plan.graph, part, cut.groups, back=back)
        return collected_bytes(cut, part.vertices, columns, counts, row_bytes, index)

    def collects(self, cut: DiskCut, stage: Stage, array: HeldArray) -> int:
        """Times that a gather goes through a table whose rows it collects: once for each group."""
        alike = [
            each
            for other, each in self.on_disk()
            if other == stage and each.is_collected and each.rows == array.rows
        ]
        whole = sum(each.bytes(self.part.rows) for each in alike)
        return 1 if self._of_sources(cut, alike, array.rows) >= whole else cut.groups

    def _held(self) -> Iterator[tuple[HeldArray, Allocation]]:
        """Tables and kept rows, as the stages list them."""
        stages, on_disk = self.stages, {(str(stage), each.name) for stage, each in self.on_disk()}
        returns = {_key(stage) for stage in stages if stage.direction == "backward"}
        for stage in stages:
            is_last, back = stage.phase == self.extent.last, _key(stage) in returns
            for array in stages_of(stage.kind).held(self.extent, stage):
                if (self.on_lambdas and array.on_threads) or self._is_in_place(stage, array):
                    continue
                if (str(stage), array.name) in on_disk:
                    continue
                share = 1.0
                if (array.forward or array.backward) and not array.filled(
                    all_needed=not is_last or self.needed.are_all, goes_back=back
                ):
                    share = self.needed.touched(array.row_bytes)
                found = round(share * array.bytes(self.part.rows))
                name = f"{_ENDS[self.lane]}: {stage} {array.name}"
                yield array, Allocation(name, found, Lifetime.EPOCHS, array.purpose)

    def _is_in_place(self, stage: Stage, array: HeldArray) -> bool:
        """Whether an array of gradients is where a gather's source rows are."""
        savings = self.extent.savings
        if array.over is None or not savings.in_place or not self.part.aligned:
            return False
        return frees_rows(self.extent.program, stage.phase - 1, savings)

    def shared(self) -> dict[str, int]:
        """Bytes of the tables that another lane on this server may use as well, by name."""
        shapes = self.extent.program.shapes
        return {
            array.name: each.bytes for array, each in self._held() if array.aligned or array.name in shapes
        }

    def _joined_heads(self) -> Iterator[Allocation]:
        """Heads are gathered with gaps between them; phases read them without."""
        program, passing = self.extent.program, fused_gathers(self.stages)
        for depth, group in enumerate(program.gathers):
            for step in group if depth not in passing else ():
                gather, width = step.site.gather, step.site.width
                heads = behaviour_of(gather).heads(gather)
                if heads <= 1 or step.slices or behaviour_of(gather).columns(gather, width) == width:
                    continue
                back = gather.rows_sent if isinstance(gather, PairSoftmax) else 1
                copies = 1 + back if self.extent.training else 1
                found = copies * self.part.vertices * width * self.extent.itemsize
                name = f"{_ENDS[self.lane]}: {step.out} without gaps"
                yield Allocation(name, found, Lifetime.EPOCHS, "heads side by side, forth and back")

    def _added_gradients(self) -> Iterator[Allocation]:
        """Rows that edges and a later phase read both: their gradients are added in a new array."""
        if not self.extent.training:
            return
        program = self.extent.program
        passing = fused_gathers(self.stages)
        sent = {
            name
            for depth, group in enumerate(program.gathers)
            for step in (group if depth not in passing else ())
            for name in step.differentiated
        }
        for stage in self.stages:
            for array in stages_of(stage.kind).held(self.extent, stage):
                if stage.direction == "backward" and array.name.removeprefix("gradient/") in sent:
                    found = array.bytes(self.part.rows)
                    name = f"training: {array.name} added up"
                    yield Allocation(name, found, Lifetime.TASK, "with those that came along edges")

    def _labels(self) -> Iterator[Allocation]:
        """Of the rows that the last phase computes: their numbers, which gathers have too, and their labels; and a mask a split.

        The only server of all, whose rows are all computed, has the graph's own labels.
        """
        rows = round(self.part.vertices * self.needed.share)
        numbers = 0 if self.needed.are_all else 2 * _ID
        labels = 0 if self.needed.are_all and self.part.alone else _ID
        splits = 1 if self.extent.training else len(self.plan.splits)
        found = rows * (numbers + labels + splits)
        yield Allocation(f"{_ENDS[self.lane]}: labels", found, Lifetime.SERVERS, "what rows should be")

    def _statistics(self) -> Iterator[Allocation]:
        """Sums of all intervals, which every server has; and of each own interval what its tasks read of them."""
        steps = [step for group in self.extent.program.reduces for step in group]
        if not steps:
            return
        every = sum(self.plan.interval_counts)
        own = max(self.plan.interval_counts)
        found = sum(
            every * sum_bytes(step)
            + (every * sum_bytes(step, back=True) if self.extent.training and step.differentiated else 0)
            + 2 * own * 2 * step.width * self.extent.itemsize
            for step in steps
        )
        name = f"{_ENDS[self.lane]}: statistics over all vertices"
        yield Allocation(name, found, Lifetime.SERVERS, "sums of every interval, forth and back")

    def _passing(self) -> Iterator[Allocation]:
        """The threads' buffers for rows that are gathered and have no table; gathers of equal width share them, and lanes."""
        if self._is_guest:
            return
        program, found = self.extent.program, 0
        buffers: set[tuple[int, str, int]] = set()
        for depth in fused_gathers(self.stages):
            for number, step in enumerate(program.gathers[depth]):
                width = self.extent.widths(step.sent)[0]
                held = held_by_step(step, width, self.extent.itemsize, training=self.extent.training)
                cut = self.extent.savings.disk
                on_disk = cut is not None and cut.reads(depth) and _in_groups(held)
                for array in held if not on_disk else ():
                    key = number, array.name, array.row_bytes
                    if not array.passes or key in buffers:
                        continue
                    buffers.add(key)
                    ways = (array.forward is not None) + (array.backward is not None)
                    found += ways * array.row_bytes * self._chunk(depth, step)
        purpose = "used up where they are made"
        yield Allocation("threads' gathered rows", self.hardware.threads * found, Lifetime.EPOCHS, purpose)

    def _chunk(self, depth: int, step: GatherStep) -> int:
        """Rows that a thread gathers at a time."""
        own = max(1, self.part.vertices)
        if step.edge is not None or step.learnt:
            return -(-own // max(1, min(self.plan.interval_counts)))
        return min(own, max(ROWS_AT_ONCE, self._block(depth), self._block(depth + 1)))

    def block_bytes(self) -> int:
        """The most that a task holds for a block of rows: every value of its phase's program at once."""
        return max(
            (
                self.extent.row_bytes(program.specs, self._block(number)) + self._adjoint_bytes(number)
                for number, phase in enumerate(self.extent.program.phases)
                for program in self._programs(number)
            ),
            default=0,
        )

    def filled_bytes(self) -> int:
        """The most that a task fills at a time of blocks that are written to tables on disk as soon as they are full."""
        cut = self.extent.savings.disk
        if cut is None:
            return 0
        made = [
            self._filled_by(stage.phase, replace(array, aligned=True).row_bytes)
            for stage, array in self.on_disk()
            if array.on_disk == "rows"
        ]
        return max([*made, *self._filled_sources(cut)], default=0)

    def _filled_sources(self, cut: DiskCut) -> Iterator[int]:
        """Of each gather's tables: a task fills one after the other forth, and all of a gather together back."""
        program = self.extent.program
        for depth in fused_gathers(self.stages):
            for step in program.gathers[depth] if cut.reads(depth) else ():
                width = self.extent.widths(step.sent)[0]
                held = held_by_step(step, width, self.extent.itemsize, training=self.extent.training)
                sources = [each for each in held if each.on_disk == "source"]
                forth = [each.row_bytes for each in sources if each.forward is not None]
                back = [each.row_bytes for each in sources if each.backward is not None]
                yield max((self._filled_by(depth, each) for each in forth), default=0)
                yield sum(self._filled_by(depth + 1, each) for each in back)

    def _filled_by(self, number: int, row_bytes: int) -> int:
        """Memory for the largest block of a tensor phase, in a table with rows of so many bytes."""
        rows = largest_block(self.lengths, self.part.vertices, self._block_size(number))
        return whole_pages(rows * row_bytes) + PAGE

    def _adjoint_bytes(self, number: int) -> int:
        """Gradients of a block's rows that come of statistics over all vertices, and their sum with others."""
        reduces = self.extent.program.reduces
        steps = reduces[number] if self.extent.training and number < len(reduces) else ()
        return sum(2 * self._block(number) * step.width * self.extent.itemsize for step in steps)

    def _block(self, number: int) -> int:
        return min(self._block_size(number), max(1, self.part.vertices))

    def _block_size(self, number: int) -> int:
        phase = self.extent.program.phases[number]
        widths = self.extent.widths((*phase.inputs, *phase.outputs))
        return block_rows(widths, self.extent.itemsize, self.hardware.near_cache)

    def _programs(self, number: int) -> Iterator[TensorProgram]:
        programs = self.extent.program.phases[number].programs
        if self.extent.training and number in self.extent.savings.remade:
            chosen = (programs.forward, programs.backward, programs.last)
        else:
            chosen = (programs.forward_keeping, programs.backward_kept, programs.last)
        yield from (each for each in chosen if each is not None)


def _in_groups(held: Sequence[HeldArray]) -> bool:
    """Whether rows that are gathered from disk are in a group's table; else they are in the threads' buffers."""
    return any(
        each.on_disk and (each.grouped is None or not (each.grouped.types or each.grouped.collected))
        for each in held
    )


def _key(stage: Stage) -> tuple[str, int]:
    """Kind and phase of what is held, the same for a stage and the one that goes back for it."""
    return stage.kind.name, stage.phase
