"""States of an epoch, each once its partitions are in the buffer."""

from collections.abc import Iterator
from itertools import pairwise, zip_longest

from siafu.embedding.disk.bucket_orders import BufferState
from siafu.embedding.disk.partition_buffer import PartitionBuffer


def resident_states(buffer: PartitionBuffer, states: list[BufferState]) -> Iterator[BufferState]:
    """Each state, once its partitions are in the buffer."""
    moves = [_moves(before, after) for before, after in pairwise(states)]
    coming = [admitted for each in moves for _, admitted in each if admitted is not None]
    buffer.load(states[0].resident, coming)
    yield states[0]
    for state, swaps in zip(states[1:], moves, strict=True):
        for leaving, admitted in swaps:
            if admitted is not None:
                buffer.admit(admitted)
            if leaving is not None:
                buffer.release(leaving)
        yield state


def _moves(before: BufferState, after: BufferState) -> list[tuple[int | None, int | None]]:
    """Which partition leaves for which, from one state to the next; None: for none, where the buffer is not full."""
    leaving = [each for each in before.resident if each not in after.resident]
    coming = [each for each in after.resident if each not in before.resident]
    return list(zip_longest(leaving, coming))
