"""One thread of PyTorch's for every task: tasks run in parallel, operations do not.

A product that PyTorch splits over threads is added up in another order, so its last bits are others. PyTorch's
setting is each thread's own: a pool's threads make it for themselves, with `use_one_thread`.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_lock = threading.Lock()
_entered = 0
_before = 0


def use_one_thread() -> None:
    """From now on, PyTorch computes on the calling thread alone whatever this thread asks of it."""
    torch.set_num_threads(1)


def record_nothing() -> None:
    """From now on, PyTorch records nothing for autograd on the calling thread: programs have their gradients in them."""
    torch.set_grad_enabled(False)


@contextmanager
def one_thread() -> Iterator[None]:
    """Within, PyTorch computes on the calling thread alone; afterwards it has as many threads as before.

    Several threads may be within: all go back to the number of threads at the first one's beginning.
    """
    global _entered, _before
    with _lock:
        if not _entered:
            _before = torch.get_num_threads()
        _entered += 1
    use_one_thread()
    try:
        yield
    finally:
        with _lock:
            _entered -= 1
            torch.set_num_threads(_before)
