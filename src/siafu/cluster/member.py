"""Member: where a server listens, and which life of it that is."""

from dataclasses import dataclass, field

from siafu.pipeline.ids import Address


@dataclass(frozen=True, slots=True)
class Member:
    """Where a server listens.

    life:    which of those that were at `address`, one after the other
    machine: servers of one machine reach each other through `near`, others through `far` with `key`
    word:    what it says of itself at `near`, where nothing is encrypted; only servers of the run know it
    """

    address: Address
    life: int
    machine: str
    far: str
    near: str
    key: str
    word: str = field(repr=False)
