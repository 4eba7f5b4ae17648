"""Work of an epoch of Dorylus: its own tasks, without folding, choice of sides or needed rows.

GCN: GA · AV · SC · GA · AV(loss) · ∇SC · ∇GA · ∇AV, the first gather over the features, every epoch.
GAT: AV · SC · AE · GA · AV · SC · AE · GA · loss, and back; AE, the attention of every edge, is a tensor task.
"""

from collections.abc import Sequence

from siafu.pipeline.ids import LaneName, PhaseId, StageId
from siafu.pipeline.schedule import Schedule, evaluation_schedule, training_schedule
from siafu.server.costs.work import Product, Work
from siafu.virtual.graph_shape import GraphShape
from siafu.virtual.workload import Workload

_FLOAT = 4
_Parts = tuple[Schedule, Sequence[Work], dict[PhaseId, int]]
GAT_SCATTERS = 3.6
"""Bytes that GAT sends to a ghost, relative to its row: rows, and the inputs of attention. Calibrated on GAT Amazon."""

_EDGE_IN, _EDGE_OUT = 8, 4
"""Bytes of an edge that travel to a Lambda for its attention, and back: both ends' numbers, and a weight."""


def dorylus(model: str, shape: GraphShape, hidden: int, servers: int, loads: bool = False) -> Workload:
    """An epoch of two layers.

    loads: rows are brought to where they are gathered, own ones and ghosts: to a GPU
    """
    build = _gat if model == "gat" else _gcn
    training, works, parameters = build(shape, hidden, _held(shape, servers) if loads else 0.0)
    work: dict[tuple[LaneName, StageId], Work] = {
        ("train", stage.id): each for stage, each in zip(training.stages, works, strict=True)
    }
    evaluation = evaluation_schedule(0, 2)
    work |= {("evaluate", stage.id): Work(0.0) for stage in evaluation.stages}
    return Workload(
        training,
        evaluation,
        work,
        {phase: float(_FLOAT * count) for phase, count in parameters.items()},
        dict.fromkeys(parameters, 1),
    )


def _gcn(shape: GraphShape, hidden: int, loaded: float) -> _Parts:
    features, classes = shape.features, shape.classes
    first, last = (features, hidden), (hidden, classes)
    training = training_schedule(0, 2, {1, 2})
    works = (
        Work(shape.vertices),  # the features are where they are needed from the start
        _gather(shape, features, loaded),
        _tensor(shape, [features], [hidden], [first], scatters=hidden),
        _gather(shape, hidden, loaded),
        _tensor(shape, [hidden], [hidden, classes], 3 * [last], scatters=hidden, learnt=hidden * classes),
        _gather(shape, hidden, loaded),
        _tensor(shape, [hidden, features], [], [first], learnt=features * hidden, again=[first]),
    )
    return training, works, {PhaseId(1): features * hidden, PhaseId(2): hidden * classes}


def _gat(shape: GraphShape, hidden: int, loaded: float) -> _Parts:
    features, classes = shape.features, shape.classes
    first, last = (features, hidden), (hidden, classes)
    training = training_schedule(0, 2, {0, 1})
    works = (
        _tensor(shape, [features], [hidden], [first], scatters=GAT_SCATTERS * hidden),
        _gather(shape, hidden, loaded),
        _tensor(shape, [hidden], [classes], [last], scatters=GAT_SCATTERS * classes, attends=True),
        _gather(shape, classes, loaded),
        _tensor(shape, [classes], [classes], [], scatters=GAT_SCATTERS * classes, attends=True),
        _gather(shape, classes, loaded),
        _tensor(
            shape,
            [classes, hidden],
            [hidden],
            2 * [last],
            scatters=GAT_SCATTERS * hidden,
            learnt=hidden * classes,
            attends=True,
            again=[last],
        ),
        _gather(shape, hidden, loaded),
        _tensor(
            shape, [hidden, features], [], [first], learnt=features * hidden, attends=True, again=[first]
        ),
    )
    return training, works, {PhaseId(0): features * hidden, PhaseId(1): hidden * classes}


def _held(shape: GraphShape, servers: int) -> float:
    """Rows that all servers gather from: own ones and ghosts."""
    return shape.vertices + servers * shape.ghosts_of_server(servers)


def _gather(shape: GraphShape, width: int, loaded: float) -> Work:
    return Work(
        float(shape.vertices),
        edges=float(shape.edges),
        widths_in=(width,),
        widths_out=(width,),
        row_bytes=(float(_FLOAT * width),),
        streamed=loaded * _FLOAT * width,
    )


def _tensor(
    shape: GraphShape,
    reads: Sequence[int],
    makes: Sequence[int],
    products: Sequence[tuple[int, int]],
    *,
    scatters: float = 0,
    learnt: int = 0,
    attends: bool = False,
    again: Sequence[tuple[int, int]] = (),
) -> Work:
    """again: products of the forward pass that a Lambda computes again for the backward pass"""
    rows = float(shape.vertices)
    edges = float(shape.edges) if attends else 0.0
    into, out = rows * _FLOAT * sum(reads), rows * _FLOAT * sum(makes)
    return Work(
        rows,
        widths_in=tuple(reads),
        widths_out=tuple(makes),
        products=_products(rows, products),
        moved=into + out,
        functions=edges,
        received=into + edges * _EDGE_IN,
        sent=out + edges * _EDGE_OUT,
        weights=float(_FLOAT * sum(a * b for a, b in products)),
        gradients=float(_FLOAT * learnt),
        ghost_bytes=float(_FLOAT * scatters),
        again=Work(rows, products=_products(rows, again)) if again else None,
    )


def _products(rows: float, sizes: Sequence[tuple[int, int]]) -> tuple[Product, ...]:
    return tuple(Product(2.0 * rows * a * b, min(a, b)) for a, b in sizes)
