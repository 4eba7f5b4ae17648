"""Values that a forward pass keeps for its backward pass, so that no matrix product is computed twice."""

from dataclasses import dataclass
from math import prod

from siafu.program.operations import PRODUCTS
from siafu.program.tensor_program import Op, RowCount, Spec, TensorProgram, prune, renumbered, results_of

Inputs = tuple[tuple[str, Spec], ...]


@dataclass(frozen=True, slots=True)
class Kept:
    """kept: numbers of the values to keep; reused: those of outputs that the backward pass may as well read"""

    kept: tuple[int, ...]
    reused: dict[int, str]

    @property
    def outputs(self) -> list[tuple[str, int]]:
        return [(f"kept/{k}", number) for k, number in enumerate(self.kept)]


def choose_kept(inputs: Inputs, ops: tuple[Op, ...], named: dict[str, int]) -> Kept:
    """Choose one value for each product that the backward pass would compute again.

    That is the product itself or, if the backward pass needs it only to compute another value, that one.
    """
    graph = _Graph(inputs, ops)
    outputs = {number: name for name, number in named.items() if name.startswith("output/")}
    gradients = {number for name, number in named.items() if name.startswith("grad/")}
    forward = graph.ancestors(set(outputs), cut=set())
    kept: list[int] = []
    reused: dict[int, str] = {}
    # From the last product backwards: what was kept for a later one may have been all that an earlier was for.
    for number in sorted(forward, reverse=True):
        if not graph.is_product(number):
            continue
        needed = graph.ancestors(gradients, cut={*kept, *reused})
        if number not in needed or number in kept or number in reused:
            continue
        path = [each for each in graph.path(number, needed, forward) if graph.rows_first(each)]
        if not path:
            continue  # what is kept is kept by rows
        shared = [each for each in path if each in outputs]
        if shared:
            reused[shared[-1]] = outputs[shared[-1]]
        else:
            kept.append(path[-1])
    return Kept(tuple(sorted(kept)), reused)


def read_kept(inputs: Inputs, ops: tuple[Op, ...], named: dict[str, int], kept: Kept) -> TensorProgram:
    """The gradients, computed from what was kept."""
    added = {number: name for name, number in kept.outputs} | kept.reused
    return reading(
        inputs, ops, added, [(name, number) for name, number in named.items() if name.startswith("grad/")]
    )


def reading(
    inputs: Inputs, ops: tuple[Op, ...], given: dict[int, str], outputs: list[tuple[str, int]]
) -> TensorProgram:
    """The program that gives `outputs`, where some of the operations' values are further inputs, by name."""
    specs = _Graph(inputs, ops).specs
    places = {number: len(inputs) + k for k, number in enumerate(given)}
    new = {
        number: places.get(number, number if number < len(inputs) else number + len(given))
        for number in range(len(specs))
    }
    more = tuple((name, specs[number]) for number, name in given.items())
    shifted = tuple(Op(op.name, renumbered(op.arguments, new), op.results) for op in ops)
    return prune((*inputs, *more), shifted, [(name, new[number]) for name, number in outputs])


class _Graph:
    """Which operation makes a value, and which read it."""

    def __init__(self, inputs: Inputs, ops: tuple[Op, ...]) -> None:
        self.specs: list[Spec] = [spec for _, spec in inputs]
        self.maker: list[Op | None] = [None] * len(inputs)
        self.readers: dict[int, list[range]] = {}
        for op, given in zip(ops, results_of(len(inputs), ops), strict=True):
            self.specs += [spec or Spec("float", ()) for spec in op.results]
            self.maker += [op] * len(given)
            for number in set(op.refs()):
                self.readers.setdefault(number, []).append(given)

    def ancestors(self, wanted: set[int], cut: set[int]) -> set[int]:
        """The values that must be computed for `wanted`, where those in `cut` are at hand."""
        found: set[int] = set()
        waiting = list(wanted)
        while waiting:
            number = waiting.pop()
            maker = self.maker[number]
            if number in found or number in cut or maker is None:
                continue
            found.add(number)
            waiting += maker.refs()
        return found

    def is_product(self, number: int) -> bool:
        maker = self.maker[number]
        has_rows = any(isinstance(size, RowCount) for size in self.specs[number].shape)
        return maker is not None and maker.name in PRODUCTS and has_rows

    def rows_first(self, number: int) -> bool:
        shape = self.specs[number].shape
        return bool(shape) and isinstance(shape[0], RowCount)

    def path(self, number: int, needed: set[int], forward: set[int]) -> list[int]:
        """Values from one to the last that can stand for it: each is read, as far as needed, for the next alone."""
        path = [number]
        while True:
            readers = [given for given in self.readers.get(path[-1], []) if needed.intersection(given)]
            if len(readers) != 1 or len(readers[0]) != 1:
                return path
            (following,) = readers[0]
            if following not in forward or _size(self.specs[following]) > _size(self.specs[number]):
                return path
            path.append(following)


def _size(spec: Spec) -> int:
    """Numbers in a row."""
    return prod(spec.sizes(rows=1))
