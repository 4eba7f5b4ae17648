"""Choice of the constant rows that are held without their zeros: bags of words, and the sums of one gather over them."""

from torch import Tensor, fx

from siafu.graph import Graph
from siafu.program.density import MOST_DENSITY, sampled_density
from siafu.program.execute.sparse_rows import SparseRows
from siafu.program.program import Program, TensorPhase
from siafu.program.record.cut import is_gather, is_row
from siafu.program.tensor_program import Ref, TensorProgram, results_of
from siafu.server.rows.streamed_rows import StreamedRows

ConstantTable = Tensor | SparseRows | StreamedRows

_FACTORS = {"mm": ([0], [1]), "addmm": ([1],), "half_mm": ([0], [1]), "half_addmm": ([1],)}
"""Places of a product's arguments that may be without their zeros, one at a time."""


def sparse_constants(program: Program, graph: Graph) -> frozenset[str]:
    """Names of the rows to hold so. All servers of a run choose the same: the choice depends on a sample of the whole graph."""
    found = set()
    for name, node in zip(program.constants, program.cut.constants, strict=True):
        depth = _gathers_of_zeros(node, program.cut.recording.features)
        if depth is None or depth > 1 or not _is_multiplied_only(program, name):
            continue
        if sampled_density(graph, gathered=depth == 1) <= MOST_DENSITY:
            found.add(name)
    return frozenset(found)


def _gathers_of_zeros(node: fx.Node, features: fx.Node) -> int | None:
    """Number of gathers from the features to `node`, where each step keeps zeros; None: a step does not keep them."""
    if node is features:
        return 0
    target = str(node.target)
    if is_gather(node) or (target.startswith("aten.add") and len(node.all_input_nodes) == 2):
        depths = [_gathers_of_zeros(each, features) for each in node.all_input_nodes]
    elif target.startswith("aten.mul"):
        depths = [_gathers_of_zeros(each, features) for each in node.all_input_nodes if is_row(each)]
    else:
        return None
    known = [depth for depth in depths if depth is not None]
    return max(known) + is_gather(node) if known and len(known) == len(depths) else None


def is_half_factor(program: Program, name: str) -> bool:
    """Whether rows of that name are read by products of bfloat16 alone: then they need not be widened."""
    every = [phase.programs.forward for phase in program.phases if name in phase.inputs]
    halved = (op.name == "halve" for each in every for op in each.ops)
    return any(halved) and _is_multiplied_only(program, name)


def _is_multiplied_only(program: Program, name: str) -> bool:
    """Whether rows of that name are read by products alone, of phases that compute all rows."""
    if any(name == reduce.sent for group in program.reduces for reduce in group):
        return False
    if any(name in step.sent for group in program.gathers for step in group):
        return False
    if name in program.phases[-1].inputs:
        return False
    return all(_multiplies(phase, name) for phase in program.phases if name in phase.inputs)


def _multiplies(phase: TensorPhase, name: str) -> bool:
    read, programs = f"rows/{phase.inputs.index(name)}", phase.programs
    every = (programs.forward, programs.forward_keeping, programs.backward_kept)
    return all(program is None or multiplied_only(program, read) for program in every)


def multiplied_only(program: TensorProgram, name: str) -> bool:
    """Whether an input is read as a matrix of products and in no other way."""
    if name not in program.input_names:
        return True
    numbers = {program.input_names.index(name)}
    for op, given in zip(program.ops, results_of(len(program.inputs), program.ops), strict=True):
        places = [
            k for k, each in enumerate(op.arguments) if isinstance(each, Ref) and each.number in numbers
        ]
        if op.name == "halve" and places:
            numbers.update(given)
        elif not numbers.isdisjoint(op.refs()) and places not in _FACTORS.get(op.name, ()):
            return False
    return all(given not in numbers for _, given in program.outputs)
