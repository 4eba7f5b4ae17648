"""Rows that outlast the task that made them, and gradients that can take the place of rows."""

from siafu.program.program import Program
from siafu.server.phase_runner import reread_outputs
from siafu.server.rows.interval_rows import gradient_of


def lasting_rows(program: Program, *, training: bool, remade: frozenset[int] = frozenset()) -> set[str]:
    """Rows that a phase makes and that are read again later, other than through edges; remade: as in `Lane`."""
    phases = program.phases
    read_later = {name for phase in phases for name in phase.inputs}
    read_later |= {
        name
        for depth, group in enumerate(program.gathers)
        for step in group
        for name in step.sent
        if name not in phases[depth].outputs
    }
    read_later |= {
        step.sent
        for depth, group in enumerate(program.reduces)
        for step in group
        if step.sent not in phases[depth].outputs or (training and step.variance and step.differentiated)
    }
    read_back = {
        phase.outputs[k]
        for number, phase in enumerate(phases)
        for k in (reread_outputs(phase) if training and number not in remade else ())
    }
    return read_back | {name for phase in phases for name in phase.outputs if name in read_later}


def places_of(program: Program, remade: frozenset[int]) -> dict[str, str]:
    """Gradients that can be where the rows are: of rows that a single phase reads, which then makes the gradient."""
    found = {}
    of_all = {step.sent for group in program.reduces for step in group if step.variance}
    for number, phase in enumerate(program.phases):
        again = set() if number in remade else {phase.outputs[k] for k in reread_outputs(phase)}
        again |= of_all  # the gradient of a variance reads them once more
        for name in phase.outputs:
            readers = [each for each in program.phases if name in each.inputs]
            if len(readers) == 1 and name in readers[0].differentiated and name not in again:
                found[gradient_of(name)] = name
    return found
