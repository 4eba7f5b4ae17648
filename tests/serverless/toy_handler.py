"""A handler that does as it is told. It runs in processes of its own: only what a Lambda has may be imported."""

import os
import time
from typing import Any

_calls = 0


def handler(event: dict[str, Any], context: Any) -> Any:
    """Do what `event["do"]` says; the receipt tells who did it."""
    global _calls
    _calls += 1
    answer = _ACTIONS[event.get("do", "answer")](event)
    if answer is not None:
        return answer
    return {
        "calls": _calls,
        "pid": os.getpid(),
        "left_ms": context.get_remaining_time_in_millis(),
        "echo": event,
        "variables": {
            name: value for name, value in os.environ.items() if name.startswith(("SIAFU", "AWS_"))
        },
    }


def _raise(event: dict[str, Any]) -> None:
    raise ValueError("this was asked for")


def _exit(event: dict[str, Any]) -> None:
    os._exit(3)


def _wait(event: dict[str, Any]) -> None:
    time.sleep(event["seconds"])


def _eat(event: dict[str, Any]) -> None:
    eaten = [bytearray(os.urandom(1 << 20)) for _ in range(event["megabytes"])]
    time.sleep(event.get("seconds", 0.0))
    del eaten


def _text(event: dict[str, Any]) -> str:
    return "just words"


def _long(event: dict[str, Any]) -> dict[str, str]:
    return {"long": "x" * 7_000_000}


def _huge(event: dict[str, Any]) -> None:
    bytearray(1 << 44)


def _wait_for_file(event: dict[str, Any]) -> None:
    with open(event["path"] + ".started", "w"):  # noqa: PTH123
        pass
    while not os.path.exists(event["path"]):  # noqa: PTH110
        time.sleep(0.005)


_ACTIONS = {
    "answer": lambda event: None,
    "raise": _raise,
    "exit": _exit,
    "wait": _wait,
    "wait for file": _wait_for_file,
    "eat": _eat,
    "huge": _huge,
    "text": _text,
    "long": _long,
}
