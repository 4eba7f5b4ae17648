"""Sines and cosines that LLVM makes vectors of, which it cannot of calls to the C library.

Numba does not see that this file has changed: whoever changes what it does changes the files that use it, too.
"""

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload


def sine_and_cosine(angle: Any) -> tuple[Any, Any]:
    """The sine and the cosine; of a float32 up to some thousands with an error below 2 · 10⁻⁷."""
    return np.sin(angle), np.cos(angle)


@overload(sine_and_cosine)  # type: ignore[untyped-decorator]
def _sine_and_cosine_compiled(angle: Any) -> Any:
    if angle != types.float32:

        def exact(angle: Any) -> Any:
            return np.sin(angle), np.cos(angle)

        return exact
    # Cephes' sinf and cosf: what is left of the angle after quarter turns, and a polynomial of it.
    kind, whole = np.float32, np.int32
    one, half, quarters = kind(1), kind(0.5), kind(0.63661977236758134)
    turn, more, rest = kind(1.5703125), kind(4.837512969970703125e-4), kind(7.549789948768648e-8)
    s0, s1, s2 = kind(-1.9515295891e-4), kind(8.3321608736e-3), kind(-1.6666654611e-1)
    c0, c1, c2 = kind(2.443315711809948e-5), kind(-1.388731625493765e-3), kind(4.166664568298827e-2)
    first, second = whole(1), whole(2)

    def vectors(angle: Any) -> Any:
        count = np.floor(angle * quarters + half)
        x = ((angle - count * turn) - count * more) - count * rest
        z = x * x
        sine = ((s0 * z + s1) * z + s2) * z * x + x
        cosine = ((c0 * z + c1) * z + c2) * z * z - half * z + one
        quarter = whole(count)
        odd = (quarter & first) != 0
        y, w = (cosine, sine) if odd else (sine, cosine)
        y = -y if (quarter & second) != 0 else y
        w = -w if ((quarter + first) & second) != 0 else w
        return y, w

    return vectors
