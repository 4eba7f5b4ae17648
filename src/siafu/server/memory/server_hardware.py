"""ServerHardware: the machine of a server, as far as the list of its arrays and the prices of sparing memory depend on it."""

from dataclasses import dataclass

from siafu.base.hardware.memory import free_bytes
from siafu.base.threads import thread_count
from siafu.kernels import near_cache_bytes

_DISK = 1.2e9  # bytes that a disk moves in a second, where nobody says


@dataclass(frozen=True, slots=True)
class ServerHardware:
    """One server's machine.

    threads:    that run tasks
    near_cache: bytes of a core's own cache: the size of blocks
    memory:     bytes that the server and the pages of its files may take together; None: what is free now
    read_bytes_s, write_bytes_s: of the disk with its scratch files
    """

    threads: int
    near_cache: int
    memory: int | None = None
    read_bytes_s: float = _DISK
    write_bytes_s: float = _DISK

    def page_room(self, peak: int, taken: int) -> int | None:
        """Memory for pages of mapped files beside a server; None: enough.

        peak:  bytes that the server takes at most; taken: those of them that it holds already
        """
        if self.memory is not None:
            return max(0, self.memory - peak)
        free = free_bytes()
        return None if free is None else max(0, free + taken - peak)


def this_machine() -> ServerHardware:
    """The machine of this process."""
    return ServerHardware(thread_count(), near_cache_bytes())
