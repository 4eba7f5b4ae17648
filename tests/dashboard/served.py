"""A dashboard that is really served, in a thread of this process."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from siafu.dashboard.access import Access
from siafu.dashboard.app import Dashboard
from siafu.dashboard.connections import Connections
from siafu.dashboard.server import DashboardServer, listen


@dataclass(frozen=True, slots=True)
class Served:
    """Where it answers, and what is behind it."""

    url: str
    port: int
    dashboard: Dashboard
    server: DashboardServer


@contextmanager
def served(
    runs: Path,
    access: Access | None = None,
    *,
    look_seconds: float = 0.05,
    crowd: Connections | None = None,
) -> Iterator[Served]:
    """The dashboard of `runs`, as `siafu dashboard` configures it, but quicker to look."""
    dashboard = Dashboard(runs, access or Access(), look_seconds=look_seconds)
    with listen("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        server = DashboardServer(dashboard, crowd)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield Served(f"http://127.0.0.1:{port}", port, dashboard, server)
        finally:
            server.should_exit = True
            thread.join()
