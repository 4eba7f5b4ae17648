"""Proxy: a link between two machines that can be cut, slowed down, and made to swallow what goes through it."""

import socket
import threading
import time
from contextlib import suppress
from types import TracebackType

_CHUNK = 1 << 14


class Proxy:
    """Passes bytes on to `target` ("tcp://host:port").

    cut:      end all connections and take no new ones until `mend`
    swallow:  what is sent from now on is read but not passed on
    bytes_a_second: how fast bytes go to the target; None: as fast as they can
    """

    def __init__(self, target: str, *, bytes_a_second: float | None = None) -> None:
        host, _, port = target.removeprefix("tcp://").rpartition(":")
        self._target = (host, int(port))
        self._rate = bytes_a_second
        self._whole, self._swallowing = True, False
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._door = socket.create_server(("127.0.0.1", 0))
        self.address = "tcp://{}:{}".format(*self._door.getsockname())
        threading.Thread(target=self._listen, daemon=True).start()

    def cut(self) -> None:
        with self._lock:
            self._whole = False
            for each in self._open:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        with self._lock:
            self._whole, self._swallowing = True, False

    def swallow(self) -> None:
        with self._lock:
            self._swallowing = True

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()
        self._door.close()

    def _listen(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._door.accept()
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with near, suppress(OSError), socket.create_connection(self._target) as far:
            with self._lock:
                if not self._whole:
                    return
                self._open |= {near, far}
            back = threading.Thread(target=self._pass_on, args=(far, near, None), daemon=True)
            back.start()
            self._pass_on(near, far, self._rate)
            back.join()
            with self._lock:
                self._open -= {near, far}

    def _pass_on(self, source: socket.socket, sink: socket.socket, rate: float | None) -> None:
        with suppress(OSError):
            while block := source.recv(_CHUNK):
                if rate is not None:
                    time.sleep(len(block) / rate)
                if not self._swallowing:
                    sink.sendall(block)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
