"""Ratios: how much faster one machine is than another, from public specifications.

Three ratios, each of one hardware thread while all others of its socket are busy:
  products  by clock × vector units, shared by the threads of a core;
  memory    by the socket's memory bandwidth, shared by its threads: for tables that no cache holds;
  pace      by clock, for all else; where two threads share a core, each has 0.65 of it.
"""

from dataclasses import dataclass

from siafu.cost.instances import Processor

# What each of two threads has of a core: together 1.3 times one, Intel's figure for hyper-threading.
_SHARED_CORE = 0.65


@dataclass(frozen=True, slots=True)
class Ratios:
    """Speed of a thread, relative to one of the measured machine.

    Where the price book does not know that machine's processor, a thread there is taken to be one of the machine in
    question, and all ratios are 1.
    """

    products: float
    memory: float
    pace: float


def ratios(there: Processor, here: Processor | None) -> Ratios:
    """Ratios from public specifications."""
    if here is None:
        return Ratios(1.0, 1.0, 1.0)
    return Ratios(
        there.flops_per_thread / here.flops_per_thread,
        there.memory_bytes_per_thread / here.memory_bytes_per_thread,
        _pace(there) / _pace(here),
    )


def _pace(processor: Processor) -> float:
    return processor.clock_ghz * (_SHARED_CORE if processor.threads_per_core > 1 else 1.0)
