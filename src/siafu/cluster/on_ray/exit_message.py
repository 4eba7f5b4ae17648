"""ExitMessage: a line on stderr when something else ends this process.

Ray ends a driver's process that has lost its cluster, by a signal or by `_exit`: no Python code runs then. So a shell waits
at the other end of a pipe, and prints the line if the pipe closes before `withdraw`.
"""

import atexit
import subprocess
from contextlib import suppress

_SCRIPT = 'read -r word || printf "%s\\n" "$0" >&2'


class ExitMessage:
    """Prints `line` when this process ends before `withdraw`. Without a shell, nothing is printed."""

    def __init__(self, line: str) -> None:
        self._shell: subprocess.Popen[bytes] | None = None
        with suppress(OSError):
            self._shell = subprocess.Popen(
                ["sh", "-c", _SCRIPT, line],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for us
            )
            atexit.register(self.withdraw)

    def withdraw(self) -> None:
        """Print nothing: the process ends as it should."""
        if self._shell is None:
            return
        assert self._shell.stdin is not None
        with suppress(OSError):
            self._shell.stdin.write(b"well\n")
            self._shell.stdin.close()
        self._shell.wait()
        self._shell = None
        atexit.unregister(self.withdraw)
