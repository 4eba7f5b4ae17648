"""Fusion: which gathers can do without a table for what they gather, and what that means for the rows they read."""

from collections.abc import Collection

from siafu.program.program import Program
from siafu.server.gathers.registry import behaviour_of
from siafu.server.memory.savings import Savings
from siafu.server.phase_runner import inputs_read_back


def fusable(program: Program, depths: Collection[int]) -> frozenset[int]:
    """Those of some gathers whose rows, and the gradients of what they send, are used up by the tensor phase next to them."""
    return frozenset(depth for depth in depths if _is_used_up(program, depth))


def _is_used_up(program: Program, depth: int) -> bool:
    phases, gathers = program.phases, program.gathers
    if depth >= len(gathers) or not gathers[depth]:  # an evaluation may have fewer than the training
        return False
    if any(step.slices for step in gathers[depth]):
        return False
    own = {step.out for step in gathers[depth]}
    if own & {reduce.sent for group in program.reduces for reduce in group}:
        return False
    later = {name for phase in phases[depth + 2 :] for name in phase.inputs}
    later |= {name for group in gathers[depth + 2 :] for step in group for name in step.sent}
    made = {*phases[depth].outputs, *(step.out for step in (gathers[depth - 1] if depth else ()))}
    sent = {name for step in gathers[depth] for name in step.differentiated}
    return not own & later and sent <= made


def alike(one: Program, other: Program) -> bool:
    """Whether two programs of a model have the same gathers in the same places, so that one can use the other's tables.

    They may not where a training takes statistics over all vertices and an evaluation uses the running ones.
    """
    if not any(group for each in (one, other) for group in each.reduces):
        return True
    places = [
        [[(step.site.gather, step.site.width) for step in group] for group in each.gathers]
        for each in (one, other)
    ]
    return places[0] == places[1]


def gathers_again(program: Program, savings: Savings) -> frozenset[int]:
    """The gathers without a table, by place, that run once more on the way back."""
    fused = fusable(program, savings.fused)
    return frozenset(depth for depth in fused if _is_run_again(program, depth, savings.remade))


def frees_rows(program: Program, depth: int, savings: Savings) -> bool:
    """Whether nobody reads the source rows of a gather any more when their gradients are sent back.

    An interval sends gradients of what the last gather gave as soon as it has gathered itself. Those of another gather it
    sends once it has gathered gradients from all intervals that read its rows: they are past that gather.
    """
    return depth < len(program.gathers) - 1 and depth not in gathers_again(program, savings)


def _is_run_again(program: Program, depth: int, remade: frozenset[int]) -> bool:
    if depth == len(program.gathers) - 1:  # gathered, learnt from and sent back in one task
        return False
    phase = depth + 1
    read = inputs_read_back(program.phases[phase], keeps=phase not in remade)
    return any(
        step.out in read or behaviour_of(step.site.gather).resends(step) for step in program.gathers[depth]
    )
