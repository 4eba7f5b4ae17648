"""Small workloads and machines whose runs can be worked out by hand."""

from siafu.pipeline.ids import PhaseId
from siafu.pipeline.schedule import evaluation_schedule, training_schedule
from siafu.server.costs.work import Work
from siafu.virtual.costs import CoreSpeed, Curve, EdgeCosts, LambdaKind, Machine
from siafu.virtual.graph_shape import GraphShape
from siafu.virtual.workload import Workload

ROWS, EDGES = 100, 1000
SHAPE = GraphShape(ROWS, EDGES, 4, 2, train=1.0, ghosts={2: 10.0})

_EDGE = Curve.flat(0.002)
_CORE = CoreSpeed(Curve.flat(1.0), stream=100.0, draws=1.0, call_seconds=0.0)


def machine(*, cores: int = 1, network: float = 10.0, latency: float = 1.0) -> Machine:
    """A core goes through 100 bytes a second, and an edge takes it 2 ms."""
    return Machine(
        cores,
        _CORE,
        EdgeCosts((1.0,), (_EDGE,), _EDGE),
        (0.0, 0.0),
        task_seconds=0.0,
        network_bytes_s=network,
        latency_s=latency,
        memory_bytes=1e9,
        message_seconds=0.0,
    )


def workload(*, ghost_bytes: float = 0.0) -> Workload:
    """T0 takes a core 1 s, G1 2 s and the loss 3 s, over all rows."""
    training, evaluation = training_schedule(0, 1, {1}), evaluation_schedule(0, 1)
    tensor = Work(ROWS, moved=100.0, received=50.0, sent=20.0, ghost_bytes=ghost_bytes)
    works = [
        tensor,
        Work(ROWS, edges=EDGES, row_bytes=(64.0,)),
        Work(ROWS, moved=300.0, received=50.0, sent=20.0),
    ]
    work = {("train", stage.id): each for stage, each in zip(training.stages, works, strict=True)}
    return Workload(training, evaluation, work, {PhaseId(1): 0.0}, {PhaseId(1): 0})  # type: ignore[arg-type]


def far_lambda(**changes: object) -> LambdaKind:
    """A Lambda as fast as a core, whose messages take 1 s and 10 bytes a second."""
    return LambdaKind(
        **{  # type: ignore[arg-type]
            "memory_mb": 128,
            "thread": _CORE,
            "bytes_s": 10.0,
            "latency_s": 1.0,
            "invoke_s": 0.0,
            "cold_start_s": 0.0,
            "task_seconds": 0.0,
            "prefetch": 0,
            "keeps_constants": False,
            "keeps_forward": False,
        }
        | changes
    )
