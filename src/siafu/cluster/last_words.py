"""LastWords: a line on stderr for a process that is ended without being asked.

Ray ends the process of a driver that has lost its cluster, by a signal or by `_exit`: nothing of Python's runs then. So a shell
waits at the other end of a pipe, and speaks when the pipe closes before it was told that all is well.
"""

import atexit
import subprocess
from contextlib import suppress

_SCRIPT = 'read -r word || printf "%s\\n" "$0" >&2'


class LastWords:
    """Says `line` when this process ends before `withdraw`. Where there is no shell, nothing is said."""

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
        """All is well: nothing needs to be said."""
        if self._shell is None:
            return
        assert self._shell.stdin is not None
        with suppress(OSError):
            self._shell.stdin.write(b"well\n")
            self._shell.stdin.close()
        self._shell.wait()
        self._shell = None
        atexit.unregister(self.withdraw)
