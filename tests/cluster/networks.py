"""Machines with a network of their own, on this one: namespaces with a cable each to a common switch."""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_NEW_NETWORK = 0x40000000  # CLONE_NEWNET


@dataclass(frozen=True, slots=True)
class Place:
    """A machine: a network namespace, its address, and the cable's end at the switch."""

    namespace: str
    address: str
    cable: str

    def enter(self) -> None:
        """This thread, and those that it starts, are there from now on."""
        file = os.open(Path("/var/run/netns") / self.namespace, os.O_RDONLY)
        try:
            if ctypes.CDLL(None, use_errno=True).setns(file, _NEW_NETWORK):
                raise OSError(ctypes.get_errno(), f"cannot enter {self.namespace}")
        finally:
            os.close(file)

    def cut(self) -> None:
        """Pull the cable."""
        _ip("link", "set", self.cable, "down")

    def mend(self) -> None:
        _ip("link", "set", self.cable, "up")


def why_not() -> str | None:
    """Why there can be no such machines here; None: there can."""
    if os.geteuid() or shutil.which("ip") is None:
        return "network namespaces need root and the ip command"
    name = f"sfx{os.getpid()}"
    try:
        _ip("netns", "add", name)
        _ip("link", "add", name, "type", "bridge")
    except subprocess.CalledProcessError as error:
        return f"no network namespaces here: {error.stderr.strip()}"
    finally:
        for what in (["link", "del", name], ["netns", "del", name]):
            subprocess.run(["ip", *what], capture_output=True, check=False)
    return None


@contextmanager
def machines(count: int) -> Iterator[tuple[str, list[Place]]]:
    """The address of this machine at the switch, and the others."""
    number = os.getpid() % 10_000
    subnet = f"10.{200 + number % 50}.{number % 250}"
    switch = f"sf{number}"
    places = [Place(f"{switch}-{each}", f"{subnet}.{each + 2}", f"{switch}c{each}") for each in range(count)]
    try:
        _ip("link", "add", switch, "type", "bridge")
        _ip("addr", "add", f"{subnet}.1/24", "dev", switch)
        _ip("link", "set", switch, "up")
        for place in places:
            _plug_in(place, switch)
        yield f"{subnet}.1", places
    finally:
        for place in places:
            subprocess.run(["ip", "netns", "del", place.namespace], capture_output=True, check=False)
            subprocess.run(["ip", "link", "del", place.cable], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", switch], capture_output=True, check=False)


def _plug_in(place: Place, switch: str) -> None:
    here = f"{place.address.rpartition('.')[0]}.1"
    _ip("netns", "add", place.namespace)
    _ip("link", "add", place.cable, "type", "veth", "peer", "name", "eth0", "netns", place.namespace)
    _ip("link", "set", place.cable, "master", switch, "up")
    for what in (
        ["addr", "add", f"{place.address}/24", "dev", "eth0"],
        ["link", "set", "eth0", "up"],
        ["link", "set", "lo", "up"],
        ["route", "add", "default", "via", here],
    ):
        _ip("-n", place.namespace, *what)


def _ip(*what: str) -> None:
    subprocess.run(["ip", *what], check=True, capture_output=True, text=True)
