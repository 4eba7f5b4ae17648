"""A product and the bias added to it as one operation, which goes over the rows once less."""

from collections import Counter
from collections.abc import Collection

from siafu.program.tensor_program import Op, Ref, RowCount, Spec


def fuse_biases(
    inputs: tuple[tuple[str, Spec], ...], ops: tuple[Op, ...], outputs: Collection[int]
) -> tuple[Op, ...]:
    """`ops` with addmm in the place of add where the product is read for nothing else; values keep their numbers."""
    specs: list[Spec | None] = [spec for _, spec in inputs]
    made_by: dict[int, Op] = {}
    reads = Counter(number for op in ops for number in op.refs())
    fused = []
    for op in ops:
        if op.name == "add":
            op = _fused(
                op, specs, made_by, {number for number in op.refs() if reads[number] == 1} - set(outputs)
            )
        made_by[len(specs)] = op
        specs += op.results
        fused.append(op)
    return tuple(fused)


def _fused(op: Op, specs: list[Spec | None], made_by: dict[int, Op], free: set[int]) -> Op:
    for product, bias in (op.arguments, op.arguments[::-1]):
        if not (isinstance(product, Ref) and isinstance(bias, Ref) and product.number in free):
            continue
        maker, spec = made_by.get(product.number), specs[bias.number]
        width = op.results[0].shape[-1:] if op.results[0] is not None else ()
        if maker is None or maker.name != "mm" or spec is None or spec.kind != "float":
            continue
        if spec.shape == width and not isinstance(width[0], RowCount):
            return Op("addmm", (bias, *maker.arguments), op.results)
    return op
