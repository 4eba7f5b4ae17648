"""Hashes as random numbers: each draw is a pure function of its key."""

from typing import Any

import numpy as np

from siafu.base.jit import kernel

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2**64 over the golden ratio: SplitMix64's step


@kernel
def mix(z: Any) -> Any:
    """SplitMix64's finaliser: a bijection of 64 bits in which every bit depends on every other."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@kernel
def uniform(bits: Any) -> float:
    """64 mixed bits as a number in [0, 1)."""
    return np.float64(bits >> np.uint64(11)) * 2.0**-53
