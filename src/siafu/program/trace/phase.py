"""Tracing: a tensor phase, written in PyTorch, as tensor programs for its forward and its backward pass."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor, fx

from siafu.base.errors import BadInput
from siafu.program.phase_programs import PhasePrograms
from siafu.program.tensor_program import Kind, Ref, TensorProgram, prune
from siafu.program.trace.aten import translate
from siafu.program.trace.aten_call import spec_of
from siafu.program.trace.builder import Builder
from siafu.program.trace.decompositions import decompositions
from siafu.program.trace.fuse import fuse_biases
from siafu.program.trace.keep import choose_kept, read_kept
from siafu.program.trace.read_dropped import read_dropped
from siafu.program.trace.rowwise import check_outputs, check_rowwise
from siafu.program.trace.tracing import refusing, shapes_only, traced, without_numbers

PhaseFunction = Callable[[list[Tensor], dict[str, Tensor], Tensor, Tensor], list[Tensor]]
"""(rows, weights by name, vertices int64 [rows], key int64 [2]) → rows"""
LossFunction = Callable[[list[Tensor], Tensor], Tensor]
"""(what the phase gives, y) → the loss, a sum over rows"""


@dataclass(frozen=True, slots=True)
class RowSpec:
    """Rows [rows, *shape]."""

    shape: tuple[int, ...]
    kind: Kind = "float"


def trace_phase(
    function: PhaseFunction,
    rows: Sequence[RowSpec],
    weights: Mapping[str, Tensor],
    *,
    of_vertices: Collection[str] = (),
    learnt: Sequence[str] = (),
    differentiated: Sequence[int] = (),
    loss: LossFunction | None = None,
    target: RowSpec | None = None,
    totals: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    moved: Sequence[str] = (),
) -> PhasePrograms:
    """Trace `function` for any number of rows, and its gradients.

    weights:        parameters and buffers; their shapes and types count, not their numbers
    of_vertices:    the weights that have a row for each vertex: the programs get those of their rows
    learnt:         the weights that get a gradient
    differentiated: the rows, by position, that get one
    loss:           of the last phase
    target:         what its y looks like; if not given, one class a row
    totals:         shapes of statistics over all vertices that it reads, by name; `function` finds them among the weights
    moved:          those that get a gradient
    """
    phase = _Phase(
        function,
        rows,
        weights,
        list(learnt),
        list(differentiated),
        loss,
        target,
        totals,
        list(moved),
        of_vertices,
    )
    builder, given = phase.trace()
    return _split(builder, given, phase)


@dataclass(eq=False)
class _Phase:
    function: PhaseFunction
    rows: Sequence[RowSpec]
    weights: Mapping[str, Tensor]
    learnt: list[str]
    differentiated: list[int]
    loss: LossFunction | None
    target: RowSpec | None
    totals: Mapping[str, tuple[int, ...]]
    moved: list[str]
    of_vertices: Collection[str]

    def __post_init__(self) -> None:
        floats = {each.dtype for each in self.weights.values() if each.is_floating_point()}
        if len(floats) > 1:
            raise BadInput(
                f"the model's weights have several types ({', '.join(map(str, floats))}): give them one"
            )
        self.float = next(iter(floats), torch.float32)
        self.changes_rows = False
        self.fakes = shapes_only()

    def trace(self) -> tuple[Builder, dict[str, Ref | None]]:
        """Everything in one: named values of the outputs, the loss and the gradients."""
        inputs = self._inputs()
        outputs = self._check_forward(inputs)
        if self.loss is None and (self.learnt or self.differentiated or self.moved):
            inputs |= {f"gradient/{k}": out for k, out in enumerate(outputs)}
        return self._traced(self._joint, inputs)

    def _check_forward(self, inputs: dict[str, Tensor]) -> list[Tensor]:
        """Outputs of the phase, once it is known that each row is computed alone."""
        outputs: list[Tensor] = []

        def forward(inputs: dict[str, Tensor]) -> dict[str, Tensor | None]:
            outputs[:] = self._call(inputs)
            return {f"output/{k}": out for k, out in enumerate(outputs)}

        builder, named = self._traced(forward, inputs)
        program = prune(
            builder.inputs,
            tuple(builder.ops),
            [(name, each.number) for name, each in named.items() if each is not None],
        )
        check_rowwise(program, has_loss=False)
        check_outputs(program)
        with self.fakes:
            return [torch.empty_like(out) for out in outputs]

    def _traced(
        self, function: Callable[[dict[str, Tensor]], dict[str, Tensor | None]], inputs: dict[str, Tensor]
    ) -> tuple[Builder, dict[str, Ref | None]]:
        """`function` of named inputs as operations, and what it gives by name."""
        names: list[str] = []

        def listed(*tensors: Tensor) -> list[Tensor | None]:
            found = function(dict(zip(inputs, tensors, strict=True)))
            names[:] = list(found)
            return list(found.values())

        with self.fakes, torch.no_grad(), refusing():
            # A function may change its inputs in place.
            copies = [each.clone() for each in inputs.values()]
            found = traced(listed, *copies, decomposition_table=decompositions())
            found.graph.eliminate_dead_code()
            found.recompile()
            if any(map(_is_mutable, found.graph.nodes)):
                self.changes_rows = True
                found = _out_of_place(found, copies)
        specs = [(name, spec_of(tensor)) for name, tensor in inputs.items()]
        if any(isinstance(spec.shape[0], int) for name, spec in specs if name.startswith("rows/")):
            raise BadInput(
                "the model fixes the number of rows: write it for any number, with x.shape[0] instead of len(x)"
            )
        builder, values = translate(found, specs)
        return builder, dict(zip(names, values, strict=True))

    def _inputs(self) -> dict[str, Tensor]:
        """Every input but the gradients, without numbers."""
        inputs = {f"rows/{k}": self._fake_rows(spec) for k, spec in enumerate(self.rows)}
        for name, each in self.weights.items():
            own = name in self.of_vertices
            bare = torch.empty((_SOME_ROWS, *each.shape[1:]) if own else each.shape, dtype=each.dtype)
            inputs[f"weight/{name}"] = without_numbers(self.fakes, bare, rows=own)
        for name, shape in self.totals.items():
            inputs[f"total/{name}"] = without_numbers(self.fakes, torch.empty(shape, dtype=self.float))
        inputs["vertices"] = self._fake_rows(RowSpec((), "int64"))
        inputs["key"] = without_numbers(self.fakes, torch.empty(2, dtype=torch.int64))
        if self.loss is not None:
            inputs["y"] = self._fake_rows(self.target or RowSpec((), "int64"))
        return inputs

    def _fake_rows(self, spec: RowSpec) -> Tensor:
        kind = self.float if spec.kind == "float" else getattr(torch, spec.kind)
        return without_numbers(self.fakes, torch.empty((_SOME_ROWS, *spec.shape), dtype=kind), rows=True)

    def _call(self, inputs: Mapping[str, Tensor]) -> list[Tensor]:
        rows = [inputs[f"rows/{k}"] for k in range(len(self.rows))]
        weights = {name: inputs[f"weight/{name}"] for name in self.weights}
        weights |= {name: inputs[f"total/{name}"] for name in self.totals}
        return list(self.function(rows, weights, inputs["vertices"], inputs["key"]))

    def _joint(self, inputs: dict[str, Tensor]) -> dict[str, Tensor | None]:
        wanted = [f"rows/{k}" for k in self.differentiated] + [f"weight/{name}" for name in self.learnt]
        wanted += [f"total/{name}" for name in self.moved]
        inputs = inputs | {name: inputs[name].detach().requires_grad_() for name in wanted}
        with torch.enable_grad():
            # What gets a gradient must not be changed in place: a copy may be.
            rows = {name: each.clone() for name, each in inputs.items() if name.startswith("rows/")}
            outputs = self._call(inputs | rows if self.changes_rows else inputs)
            found: dict[str, Tensor | None] = {f"output/{k}": out for k, out in enumerate(outputs)}
            if self.loss is not None:
                found["loss"] = total = self.loss(outputs, inputs["y"])
                ends, starts = [total], None
            elif not wanted:
                return found
            else:
                ends = [out for out in outputs if out.requires_grad]
                starts = [inputs[f"gradient/{k}"] for k, out in enumerate(outputs) if out.requires_grad]
            gradients: Sequence[Tensor | None] = [None] * len(wanted)
            if wanted and any(end.requires_grad for end in ends):
                starting = [inputs[name] for name in wanted]
                gradients = torch.autograd.grad(ends, starting, starts, allow_unused=True)
        return found | {f"grad/{name}": each for name, each in zip(wanted, gradients, strict=True)}


_SOME_ROWS = 8191  # a size to trace with; it ends up as a symbol


def _split(builder: Builder, given: dict[str, Ref | None], phase: _Phase) -> PhasePrograms:
    inputs = dict(builder.inputs)
    named: dict[str, int] = {}
    for name, value in given.items():
        # What the outputs do not depend on has a gradient of zeros.
        spec = inputs.get(name.removeprefix("grad/"))
        if value is None:
            assert spec is not None, "only gradients may be missing"
            value = builder.emit("full", spec.shape, 0.0, "float", result=spec)
        named[name] = value.number
    ops = fuse_biases(builder.inputs, tuple(builder.ops), named.values())
    ops = read_dropped(len(builder.inputs), ops, named.values())

    def take(prefixes: tuple[str, ...], extra: Sequence[tuple[str, int]] = ()) -> TensorProgram:
        outputs = [each for each in named.items() if each[0].startswith(prefixes)]
        return prune(builder.inputs, ops, [*outputs, *extra])

    forward = take(("output/",))
    if phase.loss is not None:
        check_rowwise(take(("loss",)), has_loss=True)
        return PhasePrograms(forward, forward, None, None, take(("loss", "grad/")))
    if not any(name.startswith("grad/") for name in named):
        return PhasePrograms(forward, forward, None, None, None)
    kept = choose_kept(builder.inputs, ops, named)
    return PhasePrograms(
        forward,
        take(("output/",), kept.outputs),
        take(("grad/",)),
        read_kept(builder.inputs, ops, named, kept),
        None,
    )


def _is_mutable(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and bool(schema.is_mutable)


def _out_of_place(found: fx.GraphModule, inputs: list[Tensor]) -> fx.GraphModule:
    pure = torch.func.functionalize(found, remove="mutations")
    try:
        return traced(pure, *inputs, decomposition_table=decompositions())
    except RuntimeError as error:
        names = {str(node.target) for node in found.graph.nodes if _is_mutable(node)}
        raise BadInput(
            f"the model changes tensors in place ({', '.join(sorted(names))}) in a way that cannot be traced: write it without"
        ) from error
