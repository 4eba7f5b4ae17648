"""What work costs on which machine: the numbers that virtual time is made of.

Every rate is of ONE core while all cores are busy: so contention for memory is in the rate, and cores add up.
"""

import math
from bisect import bisect_right
from dataclasses import dataclass, replace

from siafu.server.costs.work import Work

_LEAST_ROWS = 1024  # of a block: as in `siafu.server.lane`


@dataclass(frozen=True, slots=True)
class Curve:
    """A positive quantity measured at some sizes; a straight line in logarithms between them, flat beyond.

    points: (size, quantity), sizes ascending
    """

    points: tuple[tuple[float, float], ...]

    @classmethod
    def flat(cls, quantity: float) -> "Curve":
        return cls(((1.0, quantity),))

    def at(self, size: float) -> float:
        sizes = [each for each, _ in self.points]
        after = bisect_right(sizes, size)
        if after == 0 or after == len(self.points):
            return self.points[max(0, after - 1)][1]
        (low, first), (high, second) = self.points[after - 1 : after + 1]
        share = math.log(size / low) / math.log(high / low)
        return float(first * (second / first) ** share)

    def times(self, factor: float) -> "Curve":
        """The same curve of a machine that is so many times as fast (or slow)."""
        return Curve(tuple((size, quantity * factor) for size, quantity in self.points))


USUAL_DEGREE = 32
"""Edges of a row where `EdgeCosts.sparse` is measured."""

DENSE_VISIT = 8
"""Edges that a visit of a row finds in a block of sources, where `EdgeCosts.dense` is measured."""


@dataclass(frozen=True, slots=True)
class EdgeCosts:
    """Seconds that one core takes for one edge of a gather.

    tables: bytes of all rows that a gather picks from (own rows and ghosts), ascending: caches matter
    sparse: for each of `tables`, seconds an edge by the bytes of a row, edges row by row
    dense:  the same where a graph is so dense that Siafu gathers block by block, from a core's own cache, and every
            visit of a row finds `DENSE_VISIT` edges (`siafu.kernels.block_size` says where)
    """

    tables: tuple[float, ...]
    sparse: tuple[Curve, ...]
    dense: Curve

    def row_by_row(self, row_bytes: float, table_bytes: float) -> float:
        """An edge that picks its row from a table of that size."""
        by_table = Curve(
            tuple((table, curve.at(row_bytes)) for table, curve in zip(self.tables, self.sparse, strict=True))
        )
        return by_table.at(table_bytes)

    def by_blocks(self, row_bytes: float, visit: float) -> float:
        """An edge where each visit finds so many: what a visit itself takes is shared by them."""
        near = min(self.row_by_row(row_bytes, self.tables[0]), self.dense.at(row_bytes))
        a_visit = (self.dense.at(row_bytes) - near) * DENSE_VISIT
        return near + a_visit / visit

    def times(self, factor: float) -> "EdgeCosts":
        """Those of a core that takes so many times as long."""
        return EdgeCosts(
            self.tables, tuple(each.times(factor) for each in self.sparse), self.dense.times(factor)
        )


@dataclass(frozen=True, slots=True)
class CoreSpeed:
    """What one core, or one Lambda, does in a second; of a core, while all of the machine's are busy.

    products:     float32 FLOP/s of matrix products, by the smaller of the two widths of the product's fixed sizes
                  (rows × [a, b]: min(a, b)), rows in blocks of a core's cache
    stream:       bytes/s that operations which are no products read and write, rows in a core's cache
    draws:        numbers/s that dropout draws
    call_seconds: what one operation of a tensor program takes besides, however few its rows
    functions:    elementary functions (exponentials, logarithms) a second
    memory:       bytes/s of rows that come from tables in memory or go to them
    """

    products: Curve
    stream: float
    draws: float
    call_seconds: float
    functions: float = math.inf
    memory: float = math.inf

    def times(self, factor: float) -> "CoreSpeed":
        """One that is so many times as fast."""
        return CoreSpeed(
            self.products.times(factor),
            self.stream * factor,
            self.draws * factor,
            self.call_seconds / factor,
            self.functions * factor,
            self.memory * factor,
        )


@dataclass(frozen=True, slots=True)
class Machine:
    """One graph server's machine (weight servers may be of another type: they are small).

    cores:           threads that run tasks
    core:            what each does with tensors
    edges:           what each does with edges
    attention:       seconds that one head of an edge of a softmax takes besides its row's gather, forth and back; the edge
                     itself takes as long as one head more
    row_seconds:     what a row of a gather takes, however few edges it has
    attention_rows:  the same of one head of a softmax, forth and back; the row itself counts as one head more
    task_seconds:    what a task takes besides its work: found, scheduled, reported
    network_bytes_s: of its network interface, in each direction
    latency_s:       one way to another machine
    memory_bytes:    what it has
    message_seconds: what sending or taking a message with rows takes a core, besides `stream` for its bytes
    near_cache:      bytes of a core's own cache: the size of blocks
    """

    cores: int
    core: CoreSpeed
    edges: EdgeCosts
    attention: tuple[float, float]
    task_seconds: float
    network_bytes_s: float
    latency_s: float
    memory_bytes: float
    message_seconds: float = 20e-6
    near_cache: float = 1 << 20
    row_seconds: float = 0.0
    attention_rows: tuple[float, float] = (0.0, 0.0)

    def faster(self, factor: float) -> "Machine":
        """One whose cores are so many times as fast, memory included."""
        return replace(
            self,
            core=self.core.times(factor),
            edges=self.edges.times(1 / factor),
            attention=(self.attention[0] / factor, self.attention[1] / factor),
            task_seconds=self.task_seconds / factor,
            message_seconds=self.message_seconds / factor,
            row_seconds=self.row_seconds / factor,
            attention_rows=(self.attention_rows[0] / factor, self.attention_rows[1] / factor),
        )


@dataclass(frozen=True, slots=True)
class LambdaKind:
    """One size of Lambda.

    memory_mb:       what is billed, with its seconds
    thread:          what it computes
    bytes_s:         of its own network, in each direction; all of a server's share that server's network
    latency_s:       one way to a graph server or weight server
    invoke_s:        from being invoked to asking for its first task, when warm
    cold_start_s:    the same for the first invocation of each
    task_seconds:    what a task takes besides its rows and operations: messages packed, checked, answered
    prefetch:        tasks that it is given ahead, whose rows arrive while it computes
    tasks_per_invocation: after which it returns; 0: when there are no more
    keeps_constants: rows that never change, such as features, are sent to it once
    keeps_forward:   it has what its forward task made when the backward task comes, and computes no product again
    server_task_seconds: of a core of the graph server, for each task: handed over, taken back
    server_bytes_s:  bytes/s at which a core of the graph server packs and takes rows
    """

    memory_mb: int
    thread: CoreSpeed
    bytes_s: float
    latency_s: float
    invoke_s: float
    cold_start_s: float
    task_seconds: float
    prefetch: int = 2
    tasks_per_invocation: int = 0
    keeps_constants: bool = True
    keeps_forward: bool = True
    server_task_seconds: float = 0.0
    server_bytes_s: float = math.inf


def compute_seconds(work: Work, processor: CoreSpeed, *, blocks: int = 1) -> float:
    """What a task's tensor operations take one processor, its rows cut in so many blocks."""
    return (
        sum(each.flops / processor.products.at(each.width) for each in work.products)
        + work.moved / processor.stream
        + work.streamed / processor.memory
        + work.draws / processor.draws
        + work.functions / processor.functions
        + work.calls * blocks * processor.call_seconds
    )


def blocks_of(work: Work, machine: Machine) -> int:
    """In how many blocks a tensor task's rows are computed (`siafu.server.lane`)."""
    if not work.widest:
        return 1
    return max(1, round(work.rows / max(_LEAST_ROWS, machine.near_cache / work.widest)))


def gather_seconds(work: Work, machine: Machine) -> float:
    """What a gather's edges and rows take one core."""
    costs = machine.edges
    an_edge = sum(
        costs.by_blocks(each, work.visit) if work.visit else costs.row_by_row(each, work.table_bytes)
        for each in work.row_bytes
    )
    # What an edge takes was measured with a row to every so many of them; block by block, a visit's edges share it.
    more_rows = 0.0 if work.visit else work.rows - work.edges / USUAL_DEGREE
    picking = max(0.0, work.edges * an_edge + more_rows * machine.row_seconds)
    return picking + _softmax_seconds(work, machine)


def _softmax_seconds(work: Work, machine: Machine) -> float:
    """What a gather's softmaxes take: each row has a self-loop besides."""
    if not work.heads:
        return 0.0
    edges, rows = machine.attention[work.back], machine.attention_rows[work.back]
    return ((work.edges + work.rows) * edges + work.rows * rows) * (work.heads + 1)


def task_seconds(work: Work, machine: Machine) -> float:
    """What a task takes one core of `machine`."""
    computing = compute_seconds(work, machine.core, blocks=blocks_of(work, machine))
    return machine.task_seconds + computing + gather_seconds(work, machine)
