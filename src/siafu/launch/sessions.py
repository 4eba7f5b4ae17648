"""Sessions of processes on this machine: they outlive us, are found again later and end as a whole."""

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

_KILL_SECONDS = 5.0


def start(
    command: Sequence[str], log: Path, environment: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a process as the leader of a new session that outlives us; its output goes to `log`.

    environment: None: ours
    """
    with log.open("wb") as file:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environment,
        )


def identity(pid: int) -> dict[str, int]:
    """Number and start of a process, which tell it from a later one of the same number."""
    return {"pid": pid, "started": _stat(pid)[1]}


def alive(process: dict[str, int]) -> bool:
    """Whether that very process still runs."""
    try:
        return _stat(process["pid"])[1] == process["started"]
    except OSError:
        return False


def end(processes: Iterable[dict[str, int]], *, seconds: float) -> None:
    """End sessions by their first processes: by SIGTERM, what is left after so many seconds by SIGKILL.

    Of a session whose first process is gone the others are ended, unless the number was given to another process since.
    """
    for process in processes:
        session = process["pid"]
        if not alive(process) and Path(f"/proc/{session}").exists():
            continue
        # No process gets a session's number while one of the session lives.
        _signal([session] if alive(process) else members(session), signal.SIGTERM)
        _wait_for_end(session, seconds)
        _signal(members(session), signal.SIGKILL)
        _wait_for_end(session, _KILL_SECONDS)


def _wait_for_end(session: int, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while (members(session) or not _is_reaped(session)) and time.monotonic() < deadline:
        time.sleep(0.05)


def _is_reaped(pid: int) -> bool:
    """Whether a process has ended completely. Its first thread may end before the others."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:  # not ours, or reaped before
        return True


def _signal(processes: Iterable[int], number: signal.Signals) -> None:
    for pid in processes:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def members(session: int) -> list[int]:
    """Processes of a session that still run."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if _stat(int(entry.name))[0] == session:
                    found.append(int(entry.name))
    return found


def _stat(pid: int) -> tuple[int, int]:
    """The session of a process that runs, and when it began, in ticks since the machine did."""
    text = Path(f"/proc/{pid}/stat").read_text()
    fields = text.rpartition(")")[2].split()
    if fields[0] in "ZX":
        raise ProcessLookupError(f"process {pid} has ended")
    return int(fields[3]), int(fields[19])
