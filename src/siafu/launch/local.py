"""A cluster on this machine: several Ray nodes, each with a share of the cores."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

from siafu.base.errors import BadInput, SiafuError
from siafu.base.storage.documents import one_line
from siafu.launch import record as records
from siafu.launch import sessions
from siafu.launch.listening import in_words, listening
from siafu.launch.look import import_ray, look
from siafu.launch.loopback import LOOPBACK, make_token, token_variables
from siafu.launch.record import Record
from siafu.launch.template import check_machines, check_name

START_SECONDS = 90.0
_END_SECONDS = 15.0
_TRIES = 2
_OBJECT_STORE = 256_000_000  # rows do not pass through Ray's own store
_SCRATCH = Path("/tmp/siafu-ray-")  # and random letters: the directory that Ray writes to
_RAY = [sys.executable, "-m", "siafu.launch.loopback"]


def commands(
    name: str, machines: int, port: int, scratch: str, host: str = LOOPBACK, client_port: int = 10001
) -> list[list[str]]:
    """Commands that start the nodes: the head, then the others. Each runs until it is ended.

    host:        the address that they have; on any but this machine's own Ray listens on all interfaces
    client_port: of Ray's client server, which it always starts
    """
    check_name(name)
    check_machines(machines)
    cores = max(1, len(os.sched_getaffinity(0)) // machines)
    common = [
        "start",
        "--block",
        "--disable-usage-stats",
        f"--node-ip-address={host}",
        f"--num-cpus={cores}",
        f"--object-store-memory={_OBJECT_STORE}",
        # As many nodes as there are on one machine would take each other's ports.
        "--min-worker-port=0",
        "--max-worker-port=0",
        "--dashboard-agent-listen-port=0",
    ]
    head = ["--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={scratch}"]
    head.append(f"--ray-client-server-port={client_port}")
    return [[*common, *head]] + [[*common, f"--address={host}:{port}"]] * (machines - 1)


def up(name: str, machines: int, say: Callable[[str], None], host: str = LOOPBACK) -> Record:
    """Start the nodes; returns when all of them are there, and says where they listen."""
    import_ray()
    port, client_port = _free_ports(host)
    # Ray puts sockets there, whose paths must be short. It opens its own directory to everyone: ours is around it.
    scratch = tempfile.mkdtemp(prefix=_SCRATCH.name, dir=_SCRATCH.parent)
    address = f"{host}:{port}"
    record = Record(name, "local", machines, address=address, scratch=scratch)
    records.write(record)
    try:
        make_token(records.token_of(name))
        for number, command in enumerate(commands(name, machines, port, f"{scratch}/r", host, client_port)):
            record = _with_node(record, command)
            say(f"node {number + 1} of {machines} is up at {address}")
        say(in_words(listening(record.processes)))
    except BaseException:
        down(record)
        raise
    return record


def down(record: Record) -> None:
    """End the nodes that `up` started, the head last, and remove their files."""
    sessions.end(reversed(record.processes), seconds=_END_SECONDS)
    if record.scratch is not None and _is_scratch(Path(record.scratch)):
        shutil.rmtree(record.scratch, ignore_errors=True)
    records.forget(record.name)


def _is_scratch(path: Path) -> bool:
    """Whether `up` may have made the directory: a changed record must not make us remove anything else."""
    return path.parent == _SCRATCH.parent and path.name.startswith(_SCRATCH.name) and not path.is_symlink()


def runs(record: Record) -> bool:
    """Whether all nodes still run."""
    return bool(record.processes) and all(map(sessions.alive, record.processes))


def is_only_ray() -> bool:
    """Whether "auto" means our cluster: no other Ray runs on the machine."""
    heads = 0
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            heads += entry.name.isdigit() and (entry / "comm").read_text().strip() == "gcs_server"
    return heads == 1 and "RAY_ADDRESS" not in os.environ


def _with_node(record: Record, command: list[str]) -> Record:
    """Start one more node and wait for it. Ray gives up after 30 s on a busy machine, so there is a second try."""
    log = records.directory_of(record.name) / f"ray-{len(record.processes)}.log"
    for _ in range(_TRIES):
        variables = os.environ | token_variables(records.token_of(record.name))
        process = sessions.start([*_RAY, *command], log, variables)
        try:
            node = sessions.identity(process.pid)
        except ProcessLookupError:  # it has ended before it could be looked at
            process.wait()
            continue
        begun = replace(record, processes=[*record.processes, node])
        records.write(begun)
        came_up = False
        try:
            came_up = _came_up(begun, process)
        finally:
            if not came_up:
                sessions.end(begun.processes[-1:], seconds=_END_SECONDS)
        if came_up:
            return begun
    raise SiafuError(f"Ray's node {len(record.processes) + 1} did not come up: {_last_line(log)}")


def _came_up(record: Record, process: subprocess.Popen[bytes]) -> bool:
    """Wait until all nodes of the record are there; False: the latest has ended, or takes too long."""
    assert record.address is not None
    host, _, port = record.address.rpartition(":")
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        # A head that listens already may take a while until it answers.
        with suppress(OSError, BadInput), socket.create_connection((host, int(port)), timeout=1.0):
            if len(look(record.address).machines) >= len(record.processes):
                return True
        time.sleep(0.2)
    return False


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return one_line(lines[-1]) if lines else "it said nothing"


def _free_ports(host: str) -> tuple[int, int]:
    with ExitStack() as stack:
        unused = [stack.enter_context(socket.socket()) for _ in range(2)]
        for each in unused:
            try:
                each.bind((host, 0))
            except OSError as error:
                raise BadInput(
                    f"this machine has no address {host!r} ({error.strerror}): leave --host out, or name one it has"
                ) from error
        first, second = (int(each.getsockname()[1]) for each in unused)
    return first, second
