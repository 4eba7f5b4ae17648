"""Listening: addresses at which the processes of sessions listen, from /proc."""

import ipaddress
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from siafu.base.addresses import is_loopback
from siafu.launch import sessions

_LISTENS = "0A"  # the state of a socket in /proc/net/tcp


@dataclass(frozen=True, slots=True, order=True)
class Listening:
    """A TCP socket that waits for connections, and the name of its process."""

    host: str
    port: int
    process: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port} ({self.process})"


def listening(processes: Iterable[dict[str, int]]) -> list[Listening]:
    """Addresses at which the sessions of these processes listen."""
    found: set[Listening] = set()
    bound = _sockets()
    for process in processes:
        for pid in sessions.members(process["pid"]):
            with suppress(OSError):
                name = Path(f"/proc/{pid}/comm").read_text().strip()
                found.update(Listening(*bound[each], name) for each in _open_sockets(pid) if each in bound)
    return sorted(found)


def in_words(found: Iterable[Listening]) -> str:
    """One line that says whether other machines can connect, and at which addresses."""
    known = list(found)
    open_to_others = [str(each) for each in known if not is_loopback(each.host)]
    if open_to_others:
        return f"listens to other machines too, at {', '.join(open_to_others)}: keep them behind a firewall"
    ports = ", ".join(str(each.port) for each in known)
    return f"listens to this machine only: {known[0].host if known else 'nowhere'}, ports {ports or 'none'}"


def _open_sockets(pid: int) -> list[int]:
    links = []
    for entry in os.scandir(f"/proc/{pid}/fd"):
        with suppress(OSError):
            links.append(str(Path(entry.path).readlink()))
    return [int(each[8:-1]) for each in links if each.startswith("socket:[")]


def _sockets() -> dict[int, tuple[str, int]]:
    """Sockets that listen, by their inodes."""
    found = {}
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENS:
                    host, port = fields[1].split(":")
                    found[int(fields[9])] = _address(host), int(port, 16)
    return found


def _address(text: str) -> str:
    """An address in the usual notation, from words of 32 bits in this machine's byte order."""
    raw = b"".join(bytes.fromhex(text[at : at + 8])[::-1] for at in range(0, len(text), 8))
    address = ipaddress.ip_address(raw)
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
