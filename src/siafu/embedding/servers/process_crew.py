"""ProcessCrew: servers of embeddings as processes of this machine."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from siafu.base.errors import BadInput, SiafuError
from siafu.base.threads import thread_count
from siafu.base.typed import typed
from siafu.cluster.crew import Loss, ServerLost
from siafu.cluster.post.member import Member
from siafu.embedding.servers.server_plan import EmbedPlan
from siafu.pipeline.ids import Address

_END_SECONDS = 5.0


class ProcessServer:
    """A server's process; see `cluster.crew.Server`."""

    def __init__(self, address: Address, life: int, plan: EmbedPlan, machine: str) -> None:
        self.address, self.life = address, life
        threads = str(plan.threads or max(1, thread_count() // plan.servers))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "siafu.embedding.servers.server_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "SIAFU_THREADS": threads},
            start_new_session=True,  # Ctrl-C is for the driver
        )
        asked = {"server": address.index, "life": life, "machine": machine, "plan": plan.as_json()}
        self._say(asked)
        self._member: Member | None = None
        self._why: tuple[str, bool] | None = None

    @property
    def member(self) -> Member:
        if self._member is None:
            self._member = typed(Member, self._hear()["member"])
        return self._member

    @property
    def where(self) -> str:
        return f"process {self.process.pid}"

    def join(self, setup: None, members: Sequence[Member]) -> None:
        self._say({"members": [asdict(each) for each in members]})
        self._hear()

    def stop(self) -> None:
        with suppress(OSError):
            assert self.process.stdin is not None
            self.process.stdin.close()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def loss(self) -> Loss | None:
        """Why it is not there any more; None: it is."""
        if self.process.poll() is None:
            return None
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if "failed" in (told := json.loads(line)):
                return Loss(self.address, self.life, told["failed"], final=True, given=told["given"])
        return Loss(self.address, self.life, f"its process ended with {self.process.returncode}")

    def _say(self, what: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.write(json.dumps(what) + "\n")
            self.process.stdin.flush()

    def _hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise ServerLost(f"the process of {self.address} ended with {self.process.wait()}")
        told: dict[str, Any] = json.loads(line)
        if "failed" in told:
            raise (BadInput if told["given"] else SiafuError)(told["failed"])
        return told


class ProcessCrew:
    """Starts processes and notices when they end; see `cluster.crew.Crew`."""

    machine = "127.0.0.1"

    def __init__(self, plan: EmbedPlan) -> None:
        self._plan = plan
        self.servers: dict[Address, ProcessServer] = {}
        self._noticed: set[tuple[Address, int]] = set()

    def employ(self, servers: Iterable[tuple[Address, int]]) -> dict[Address, ProcessServer]:
        for address, life in servers:
            self.servers[address] = ProcessServer(address, life, self._plan, self.machine)
        for server in self.servers.values():
            _ = server.member
        return dict(self.servers)

    def replace(self, server: Address, life: int, *, elsewhere: bool) -> ProcessServer:
        fresh = self.servers[server] = ProcessServer(server, life, self._plan, self.machine)
        _ = fresh.member
        return fresh

    def losses(self) -> list[Loss]:
        found = [loss for each in list(self.servers.values()) if (loss := each.loss()) is not None]
        news = [loss for loss in found if (loss.server, loss.life) not in self._noticed]
        self._noticed |= {(loss.server, loss.life) for loss in news}
        return news

    def close(self) -> None:
        for server in self.servers.values():
            server.stop()
        for server in self.servers.values():
            try:
                server.process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                server.kill()
            if server.process.stdout is not None:
                server.process.stdout.close()
