"""The `siafu` command, and `python -m siafu`: Ctrl-C is one line, also while the code is still being loaded."""

# The module under `signal`: that one loads `enum`, and until the handler is set Ctrl-C ends in Python's traceback.
import _signal as signal  # type: ignore[import-not-found]
import os
import sys


def main() -> None:
    """Load the command line, then run it."""
    # A shell that starts the command in the background has it ignore Ctrl-C.
    was_ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if not was_ignored:
        signal.signal(signal.SIGINT, _end)
    from siafu.cli import main as run

    if not was_ignored:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


def _end(*_: object) -> None:
    # No exception: half-loaded modules would turn it into errors of their own.
    sys.stderr.write("siafu: interrupted while starting\n")
    sys.stderr.flush()
    os._exit(128 + signal.SIGINT)


if __name__ == "__main__":
    main()
