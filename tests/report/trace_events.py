"""What the public description of the Trace Event Format asks of a file in array form, for complete, instant and metadata events."""

import itertools
import json
from typing import Any

_METADATA = {"process_name", "process_labels", "process_sort_index", "thread_name", "thread_sort_index"}
_SCOPES = {"g", "p", "t"}


def checked_events(text: str) -> list[dict[str, Any]]:
    """The events of a whole file, each checked; spans of one thread nest or are apart."""
    events: Any = json.loads(text)
    assert isinstance(events, list)
    for event in events:
        _check(event)
    _check_threads([event for event in events if event["ph"] == "X"])
    return events


def _check(event: Any) -> None:
    assert isinstance(event, dict)
    assert isinstance(event["name"], str)
    assert isinstance(event["ph"], str) and len(event["ph"]) == 1
    assert isinstance(event["pid"], int)
    assert isinstance(event["tid"], int)
    assert isinstance(event.get("args", {}), dict)
    if event["ph"] == "M":
        assert event["name"] in _METADATA
        if event["name"] in ("process_name", "thread_name"):
            assert isinstance(event["args"]["name"], str)
        return
    assert event["ph"] in "Xi"
    assert isinstance(event["cat"], str)
    assert isinstance(event["ts"], int | float)
    assert event["ts"] >= 0
    if event["ph"] == "X":
        assert isinstance(event["dur"], int | float)
        assert event["dur"] >= 0
    else:
        assert event["s"] in _SCOPES


def _check_threads(spans: list[dict[str, Any]]) -> None:
    """No two of one thread overlap, but for the nanosecond that times are rounded to."""
    threads: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for span in spans:
        threads.setdefault((span["pid"], span["tid"]), []).append((span["ts"], span["ts"] + span["dur"]))
    for times in threads.values():
        times.sort()
        for (_, ended), (began, _) in itertools.pairwise(times):
            assert ended <= began + 0.0015
