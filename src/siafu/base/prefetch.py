"""Prefetching in kernels: ask for an array's item before it is read."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np import arrayobj

_I32 = ir.IntType(32)
_BYTES = ir.IntType(8).as_pointer()
_READ, _KEEP, _DATA = 0, 3, 1


@intrinsic  # type: ignore[untyped-decorator]
def prefetch(typing: Any, array: Any, index: Any) -> Any:
    """Bring the cache line of array[index], of a one-dimensional array, near; does nothing else."""
    signature = types.void(array, types.int64)

    def code(context: Any, builder: Any, kind: Any, values: Any) -> Any:
        data = arrayobj.make_array(kind.args[0])(context, builder, values[0]).data
        address = builder.bitcast(builder.gep(data, [values[1]]), _BYTES)
        function = ir.FunctionType(ir.VoidType(), [_BYTES, _I32, _I32, _I32])
        call = cgutils.get_or_insert_function(builder.module, function, "llvm.prefetch.p0")
        builder.call(call, [address, _I32(_READ), _I32(_KEEP), _I32(_DATA)])
        return context.get_dummy_value()

    return signature, code
