"""A cluster on this machine: several Ray nodes, each with a share of the cores."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from siafu.errors import SiafuError
from siafu.launch import record as records
from siafu.launch import sessions
from siafu.launch.look import import_ray, look
from siafu.launch.record import Record
from siafu.launch.template import check_machines, check_name

START_SECONDS = 90.0
_END_SECONDS = 15.0
_OBJECT_STORE = 256_000_000  # rows do not pass through Ray's own store
_RAY = [sys.executable, "-m", "ray.scripts.scripts"]


def commands(name: str, machines: int, port: int, scratch: str) -> list[list[str]]:
    """What starts the nodes: the head, then the others. Each runs until it is ended."""
    check_name(name)
    check_machines(machines)
    cores = max(1, len(os.sched_getaffinity(0)) // machines)
    common = [
        "start",
        "--block",
        "--disable-usage-stats",
        f"--num-cpus={cores}",
        f"--object-store-memory={_OBJECT_STORE}",
        # As many nodes as there are on one machine would take each other's ports.
        "--min-worker-port=0",
        "--max-worker-port=0",
        "--dashboard-agent-listen-port=0",
    ]
    head = ["--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={scratch}"]
    return [[*common, *head]] + [[*common, f"--address={_own_address()}:{port}"]] * (machines - 1)


def up(name: str, machines: int, say: Callable[[str], None]) -> Record:
    """Start the nodes; returns when all of them are there."""
    import_ray()
    port = _free_port()
    # Ray puts sockets there, whose paths must be short.
    scratch = tempfile.mkdtemp(prefix="siafu-ray-", dir="/tmp")
    address = f"{_own_address()}:{port}"
    record = Record(name, "local", machines, address=address, scratch=scratch)
    records.write(record)
    try:
        for number, command in enumerate(commands(name, machines, port, scratch)):
            log = records.directory_of(name) / f"ray-{number}.log"
            process = sessions.start([*_RAY, *command], log)
            record = replace(record, processes=[*record.processes, sessions.identity(process.pid)])
            records.write(record)
            if number == 0:
                _wait_for_head(process, port, log)
        say(f"waiting for {machines} nodes at {address}")
        _wait_for_nodes(record)
    except BaseException:
        down(record)
        raise
    return record


def down(record: Record) -> None:
    """End the nodes that `up` started, the head last, and what they left."""
    sessions.end(reversed(record.processes), seconds=_END_SECONDS)
    if record.scratch is not None:
        shutil.rmtree(record.scratch, ignore_errors=True)
    records.forget(record.name)


def runs(record: Record) -> bool:
    """Whether all of it is still there."""
    return bool(record.processes) and all(map(sessions.alive, record.processes))


def is_only_ray() -> bool:
    """Whether "auto" means our cluster: no other Ray runs on the machine."""
    heads = 0
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            heads += entry.name.isdigit() and (entry / "comm").read_text().strip() == "gcs_server"
    return heads == 1 and "RAY_ADDRESS" not in os.environ


def _wait_for_head(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise SiafuError(f"Ray's head ended at once: {_last_line(log)}")
        with suppress(OSError), socket.create_connection((_own_address(), port), timeout=1.0):
            return
        time.sleep(0.1)
    raise SiafuError(f"Ray's head did not answer in {START_SECONDS:.0f} s: {_last_line(log)}")


def _wait_for_nodes(record: Record) -> None:
    assert record.address is not None
    deadline = time.monotonic() + START_SECONDS
    while (there := len(look(record.address).machines)) < record.machines:
        if not runs(record) or time.monotonic() > deadline:
            dead = [number for number, each in enumerate(record.processes) if not sessions.alive(each)]
            log = (
                records.directory_of(record.name)
                / f"ray-{dead[0] if dead else len(record.processes) - 1}.log"
            )
            raise SiafuError(f"only {there} of {record.machines} nodes came up: {_last_line(log)}")
        time.sleep(0.5)


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return " ".join(lines[-1].split())[:300] if lines else "it said nothing"


def _own_address() -> str:
    """This machine's address, as Ray finds it."""
    address: str = import_ray().util.get_node_ip_address()
    return address


def _free_port() -> int:
    with socket.socket() as unused:
        unused.bind(("", 0))
        port: int = unused.getsockname()[1]
    return port
