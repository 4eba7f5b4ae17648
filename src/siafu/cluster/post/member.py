"""Member: addresses and keys of a server in one of its lives."""

from dataclasses import dataclass, field

from siafu.pipeline.ids import Address


@dataclass(frozen=True, slots=True)
class Member:
    """Addresses and keys of a server in one of its lives.

    life:    1 for the first process, 2 for its replacement, and so on
    machine: servers of one machine reach each other through `near`, others through `far` with `key`
    word:    its secret at `near`, where nothing is encrypted; only servers of the run know it
    """

    address: Address
    life: int
    machine: str
    far: str
    near: str
    key: str
    word: str = field(repr=False)
