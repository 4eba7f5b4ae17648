"""Layouts: which graph phases of a program are laid out by columns, as an option says it."""

from collections.abc import Collection
from dataclasses import replace

from siafu.base.errors import BadInput
from siafu.program.program import Program
from siafu.server.gathers.registry import can_go_by_columns

VERTICES = "vertices"
COLUMNS = "columns"


def layout_name(phases: Collection[int]) -> str:
    """The option that lays out these graph phases by columns, and no others."""
    return f"{COLUMNS}:{','.join(map(str, sorted(phases)))}" if phases else VERTICES


def column_phases(program: Program) -> tuple[int, ...]:
    """The graph phases that can be laid out by columns: G(n), for these n."""
    return tuple(
        phase
        for phase, group in enumerate(program.gathers, 1)
        if group and all(can_go_by_columns(step) for step in group)
    )


def laid_out(program: Program, layout: str, servers: int) -> Program:
    """The same program with the layout that is asked for. What names its phases leaves out those that cannot be so.

    layout: vertices; columns, where that can be; columns:1,2, for G1 and G2 alone; auto: vertices, until it is decided
    """
    chosen = _chosen(program, layout) if servers > 1 else frozenset()
    gathers = tuple(
        tuple(replace(step, slices=servers if phase in chosen else 0) for step in group)
        for phase, group in enumerate(program.gathers, 1)
    )
    return replace(program, gathers=gathers)


def _chosen(program: Program, layout: str) -> frozenset[int]:
    """The graph phases that an option lays out by columns."""
    kind, _, named = layout.partition(":")
    if kind != COLUMNS:
        return frozenset()
    able = frozenset(column_phases(program))
    if not able:
        raise BadInput(
            "layout is columns, and no gather of this model can be: edge functions, relations and attention between pairs read whole rows; "
            "leave it out, or choose vertices"
        )
    return able & {int(phase) for phase in named.split(",")} if named else able
