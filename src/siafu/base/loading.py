"""Loading of heavy libraries by a command: the garbage collector rests meanwhile, and leaves alone what was loaded."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """Import modules in this block: a command that needs PyTorch and Numba starts a sixth sooner.

    Modules make hundreds of thousands of objects that stay until the process ends. The collector would look through them
    again and again while they are made; afterwards it does not look at them any more. It is for processes of our own that just
    started: once PyTorch is there it does nothing, since objects of others could be frozen that are garbage.
    """
    if "torch" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
