"""The part of a trace that a report shows: a few epochs, small enough to be drawn."""

from pathlib import Path
from typing import Any

from siafu.report.files.trace_file import events

MOST_EPOCHS = 24
MOST_SPANS = 8000
"""Spans of an epoch that are shown: the earliest."""


def trace_view(path: Path) -> dict[str, Any] | None:
    """Spans of some epochs, in numbers: None: there are none.

    kinds, tracks: names, which spans refer to by their place
    epochs: each with its number and its spans: [kind, track, start and length in µs, interval or -1, bytes]; `left_out`
            says how many more it has
    """
    names: dict[tuple[int, int | None], str] = {}
    spans: dict[int, list[dict[str, Any]]] = {}
    for event in events(path):
        if event["name"] == "process_name":
            names[event["pid"], None] = str(event["args"].get("name"))
        elif event["name"] == "thread_name":
            names[event["pid"], event["tid"]] = str(event["args"].get("name"))
        elif event["ph"] == "X" and isinstance(event["args"].get("epoch"), int):
            spans.setdefault(event["args"]["epoch"], []).append(event)
    if not spans:
        return None
    chosen = _spread(sorted(spans), MOST_EPOCHS)
    shown = {epoch: sorted(spans[epoch], key=lambda span: span["ts"]) for epoch in chosen}
    kinds = _places(span["name"] for epoch in chosen for span in shown[epoch])
    tracks = _places(sorted({(span["pid"], span["tid"]) for epoch in chosen for span in shown[epoch]}))
    return {
        "kinds": list(kinds),
        "tracks": [
            f"{names.get((pid, None), f'process {pid}')}, {names.get((pid, tid), f'thread {tid}')}"
            for pid, tid in tracks
        ],
        "epochs": [_epoch(epoch, shown[epoch], kinds, tracks) for epoch in chosen],
    }


def _epoch(
    epoch: int, spans: list[dict[str, Any]], kinds: dict[Any, int], tracks: dict[Any, int]
) -> dict[str, Any]:
    began = spans[0]["ts"]
    return {
        "epoch": epoch,
        "left_out": max(0, len(spans) - MOST_SPANS),
        "spans": [
            [
                kinds[span["name"]],
                tracks[span["pid"], span["tid"]],
                round(span["ts"] - began, 1),
                round(span["dur"], 1),
                _whole(span["args"].get("interval"), -1),
                _whole(span["args"].get("bytes"), 0),
            ]
            for span in spans[:MOST_SPANS]
        ],
    }


def _places(values: Any) -> dict[Any, int]:
    return {value: place for place, value in enumerate(dict.fromkeys(values))}


def _spread(epochs: list[int], most: int) -> list[int]:
    """At most so many of them, the first and the last among them."""
    if len(epochs) <= most:
        return epochs
    return [epochs[round(place * (len(epochs) - 1) / (most - 1))] for place in range(most)]


def _whole(value: Any, otherwise: int) -> int:
    return value if isinstance(value, int) else otherwise
