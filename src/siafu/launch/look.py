"""Status of a Ray cluster: its machines, and its runs of siafu."""

import logging
import re
import socket
from collections import defaultdict
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from siafu.base.errors import BadInput
from siafu.base.storage.documents import one_line
from siafu.launch import record as records
from siafu.launch.loopback import loopback_is_meant, patched, show_token

_KNOCK_SECONDS = 5.0
_ACTOR = re.compile(r"siafu-(?P<server>.+)-\d+-[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class ClusterMachine:
    """A node of the cluster.

    cores, memory_bytes: what Ray may give to servers
    head:                whether it is Ray's head
    """

    address: str
    cores: int
    memory_bytes: int
    head: bool


@dataclass(frozen=True, slots=True)
class RunThere:
    """A run that has servers on the cluster.

    driver:  the process that drives it, and its machine
    command: how it was started, as far as Ray knows
    servers: what they are called, with their machine and process
    """

    driver: str
    command: str
    servers: list[str]


@dataclass(frozen=True, slots=True)
class Look:
    """Machines and runs of a cluster at the moment."""

    address: str
    machines: list[ClusterMachine]
    cores_free: int
    runs: list[RunThere]


def look(address: str) -> Look:
    """Look at the cluster at `address` ("auto": the one of this machine)."""
    ray = connect(address)
    try:
        machines = [_machine(each) for each in ray.nodes() if each["Alive"]]
        machines.sort(key=lambda each: (not each.head, each.address))
        free = int(ray.available_resources().get("CPU", 0))
        return Look(ray.get_runtime_context().gcs_address, machines, free, _runs())
    finally:
        ray.shutdown()


def _machine(node: dict[str, Any]) -> ClusterMachine:
    resources = node["Resources"]
    return ClusterMachine(
        node["NodeManagerAddress"],
        int(resources.get("CPU", 0)),
        int(resources.get("memory", 0)),
        "node:__internal_head__" in resources,
    )


def _runs() -> list[RunThere]:
    # Ray's public calls for this need its dashboard, which our clusters run without.
    from ray._private import state

    servers: defaultdict[str, list[str]] = defaultdict(list)
    for actor in state.actors().values():
        named = _ACTOR.fullmatch(actor["Name"] or "")
        if named is not None and actor["State"] == "ALIVE":
            where = f"{actor['Address']['IPAddress']}, process {actor['Pid']}"
            servers[actor["JobID"]].append(f"{named['server']} on {where}")
    jobs = {job["JobID"]: job for job in state.jobs()}
    return [_run(jobs.get(job, {}), sorted(found)) for job, found in servers.items()]


def _run(job: dict[str, Any], servers: list[str]) -> RunThere:
    driver = f"{job.get('DriverIPAddress', 'unknown')}, process {job.get('DriverPid', 'unknown')}"
    return RunThere(driver, job.get("Entrypoint", ""), servers)


def connect(address: str) -> Any:
    """Ray, connected to the cluster at an address; "auto": the one that runs on this machine."""
    ray = import_ray()
    try:
        _knock(address)
        show_token(_token(address))
        with _silent(ray), loopback_is_meant():
            ray.init(
                address=address,
                namespace="siafu",
                log_to_driver=False,
                configure_logging=False,
                logging_level=logging.ERROR,
            )
    except (OSError, OverflowError, ValueError, RuntimeError) as error:
        raise BadInput(
            f"no Ray cluster at {address!r} ({one_line(error)}): start one with 'siafu cluster up', or give its address"
        ) from None
    return ray


def _token(address: str) -> Path | None:
    """The file with the token of the cluster there, if it was started from here."""
    record = records.at(address)
    token = None if record is None else records.token_of(record.name)
    return token if token is not None and token.is_file() else None


def _silent(ray: Any) -> AbstractContextManager[None]:
    """Keep Ray from printing on stdout when a process of its ends. It has no switch for that, and we report it ourselves."""
    worker = getattr(getattr(ray, "_private", None), "worker", None)
    return patched(worker, "listen_error_messages", lambda *_: None)


def _knock(address: str) -> None:
    """Raise an OSError if nothing listens at a host and a port: Ray would try for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and "://" not in address:
        socket.create_connection((host.strip("[]"), int(port)), _KNOCK_SECONDS).close()


def import_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise BadInput("a cluster needs Ray: pip install 'siafu[cluster]'") from None
    return ray
