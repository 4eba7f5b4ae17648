"""A server that answers `Invoke` as AWS would, with what a test tells it to."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class FakeLambda:
    """Answers every request alike; `asked` is what came: (path, headers, body)."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b"{}"
    together: int = 1  # answers only once so many requests are there
    asked: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    url: str = ""


@contextmanager
def serving(fake: FakeLambda) -> Iterator[FakeLambda]:
    """Serve it while the block runs."""
    gate = threading.Barrier(fake.together)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            fake.asked.append((self.path, dict(self.headers), body))
            if fake.together > 1:
                gate.wait(timeout=30)
            self.send_response(fake.status)
            for name, value in (fake.headers | {"Content-Length": str(len(fake.body))}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(fake.body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
