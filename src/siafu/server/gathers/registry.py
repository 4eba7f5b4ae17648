"""The gathers that servers can run, and from a layer's gather to the one that runs it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import torch

from siafu.base.errors import BadInput
from siafu.nn.gathers.gather import Gather, refused_messages
from siafu.program.program import GatherStep
from siafu.server.costs.extent import Extent
from siafu.server.costs.held_array import HeldArray
from siafu.server.edges import ServerEdges
from siafu.server.gathers.behaviour import GatherBehaviour
from siafu.server.gathers.by_columns.column_space import ColumnSpace
from siafu.server.gathers.edgewise.edge_code import codes_of
from siafu.server.gathers.edgewise.edge_gather import EdgeGather, EdgeProgram, held_on_edges
from siafu.server.gathers.edgewise.edge_programs import TracedEdge
from siafu.server.gathers.edgewise.fused_edge_gather import FusedEdgeGather
from siafu.server.gathers.gather_tables import DiskTables, GatherTables
from siafu.server.gathers.local_gather import LocalGather, Mask
from siafu.server.gathers.max_gather import MaxBehaviour
from siafu.server.gathers.on_disk.disk_edge_gather import DiskEdgeGather
from siafu.server.gathers.on_disk.disk_fused_edge_gather import DiskFusedEdgeGather
from siafu.server.gathers.pair_gather import PairBehaviour
from siafu.server.gathers.relation_gather import RelationBehaviour
from siafu.server.gathers.softmax_behaviour import SoftmaxBehaviour
from siafu.server.gathers.sum_gather import SumBehaviour

GATHERS: dict[type[Gather], GatherBehaviour[Any]] = {
    each.gather: each
    for each in (SumBehaviour(), MaxBehaviour(), SoftmaxBehaviour(), PairBehaviour(), RelationBehaviour())
}

_OF = {"own": "", "every": ", some columns of all"}


def behaviour_of(gather: Gather) -> GatherBehaviour[Any]:
    """That of its type, or else of the nearest type that it is made of."""
    for each in type(gather).__mro__:
        if each in GATHERS:
            return GATHERS[each]
    raise BadInput(
        f"no server can run a gather of type {type(gather).__name__}: use Sum, Mean, GcnSum, Max, Softmax, PairSoftmax or RelationSum"
    )


def local_gather(
    gather: Gather,
    server: ServerEdges,
    width: int,
    dtype: torch.dtype = torch.float32,
    *,
    needed: Mask | None = None,
    training: bool = True,
) -> LocalGather:
    """One graph phase on one server.

    width:    columns of the rows that are gathered, all heads together
    dtype:    float32 or float64: of the tensors that go in and come out, and of the sums
    needed:   [V] over all vertices of the graph: whether somebody will read what is gathered for them; None: all
    training: whether a backward pass follows; else nothing is kept for one
    """
    return behaviour_of(gather).local(gather, server, width, dtype, needed=needed, training=training)


def local_messages(
    gather: Gather,
    program: EdgeProgram,
    server: ServerEdges,
    width: int,
    message_width: int,
    dtype: torch.dtype = torch.float32,
    *,
    needed: Mask | None = None,
    training: bool = True,
    features: int = 0,
) -> LocalGather:
    """The same of the messages that an edge function makes of rows `width` wide; features: columns of what edges have that it gets besides."""
    if not gather.reduces_messages:
        raise refused_messages(gather)
    reduction = behaviour_of(gather).reduction(gather, server, message_width, dtype)
    make = DiskEdgeGather if isinstance(server.tables, DiskTables) else EdgeGather
    return make(
        reduction,
        program,
        server,
        width,
        message_width,
        dtype,
        needed=needed,
        training=training,
        features=features,
    )


def column_step(
    step: GatherStep,
    space: ColumnSpace,
    tables: tuple[GatherTables, GatherTables],
    width: int,
    dtype: torch.dtype,
    *,
    needed: Mask | None = None,
    training: bool = True,
) -> LocalGather:
    """One gather of a program, laid out by columns.

    tables: for own rows, and for the slices of all vertices
    """
    gather = step.site.gather
    return behaviour_of(gather).sliced(gather, space, tables, width, dtype, needed=needed, training=training)


def can_go_by_columns(step: GatherStep) -> bool:
    """Whether a server can gather some of the columns: no function of whole rows runs on edges."""
    behaviour = behaviour_of(step.site.gather)
    return step.edge is None and behaviour.by_columns and len(step.sent) == behaviour.sends


def slice_step(step: GatherStep) -> GatherStep:
    """The same gather of the columns of one server, the one with the most."""
    gather, width = step.site.gather, step.site.width
    mine, cut = behaviour_of(gather).on_slice(gather, width, step.slices)
    return replace(step, site=replace(step.site, gather=mine, width=cut.width))


def local_step(
    step: GatherStep,
    server: ServerEdges,
    width: int,
    dtype: torch.dtype,
    *,
    needed: Mask | None = None,
    training: bool = True,
) -> LocalGather:
    """One gather of a program on one server."""
    gather, made = step.site.gather, step.site.width
    if step.edge is None:
        found = local_gather(gather, server, width, dtype, needed=needed, training=training)
        found.weight_names, found.learnt = step.site.weights, step.learnt
        return found
    reduction = behaviour_of(gather).reduction(gather, server, made, dtype)
    codes = codes_of(step.edge, greatest=reduction.ties is not None)
    if codes is not None:
        make: Callable[..., LocalGather] = (
            DiskFusedEdgeGather if isinstance(server.tables, DiskTables) else FusedEdgeGather
        )
        return make(
            reduction,
            TracedEdge(step),
            codes,
            server,
            width,
            made,
            dtype,
            needed=needed,
            training=training,
        )
    return local_messages(
        gather,
        TracedEdge(step),
        server,
        width,
        made,
        dtype,
        needed=needed,
        training=training,
        features=step.site.features,
    )


def held_by_step(
    step: GatherStep, width: int, itemsize: int, *, training: bool, last: bool = False
) -> tuple[HeldArray, ...]:
    """The arrays that `local_step` makes, before it makes them; of a gather by columns, those of own rows.

    last: it is the last graph phase
    """
    gather, made = step.site.gather, step.site.width
    behaviour = behaviour_of(gather)
    if step.slices:
        found = behaviour.held_for_rows(gather, width, step.slices, itemsize, training=training)
        return _held_by_columns(found, last=last, rows="own")
    if step.edge is None:
        return behaviour.held(gather, width, itemsize, training=training)
    return (
        *held_on_edges(width, made, itemsize, training=training),
        *behaviour.held_by_reduction(made, itemsize, training=training),
    )


def held_by_slice(step: GatherStep, itemsize: int, *, training: bool, last: bool) -> tuple[HeldArray, ...]:
    """The arrays that a gather by columns has for its slice of all vertices' rows."""
    gather, width = step.site.gather, step.site.width
    found = behaviour_of(gather).held_for_slice(gather, width, step.slices, itemsize, training=training)
    return _held_by_columns(found, last=last, rows="every")


def _held_by_columns(
    found: tuple[HeldArray, ...], *, last: bool, rows: Literal["own", "every"]
) -> tuple[HeldArray, ...]:
    """Gradients take the place of rows, but for the last gather's."""
    return tuple(
        replace(each, rows=rows, on_disk=None, passes=False, over=None, name=f"{each.name}{_OF[rows]}")
        for each in found
        if each.over is None or last
    )


def column_bytes(step: GatherStep, extent: Extent, *, made: bool, back: bool) -> float:
    """Bytes of a row that travels to each other server, or from each (`made`), where it is laid out by columns: the mean."""
    gather, servers = step.site.gather, step.slices
    found = behaviour_of(gather).slice_bytes(
        gather,
        step.site.width,
        servers,
        extent.itemsize,
        made=made,
        back=back,
        training=extent.training,
    )
    return sum(found) / servers
