"""RunStory: what a run's directory tells of an interval, an epoch, a server or a Lambda.

Of a run that failed there is `story.jsonl`, with every event and instruction of its last minutes. Of any other there is the
trace: the tasks of some epochs.
"""

import heapq
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from siafu.base.errors import BadInput
from siafu.report.files.run_directory import RunDirectory
from siafu.report.files.story_file import read_story
from siafu.report.files.trace_file import events, first_session
from siafu.runtime.story import Entry, Wanted, fit

_LAMBDAS_OF = "Lambdas of "


@dataclass(frozen=True, slots=True)
class RunStory:
    """Entries about a run.

    source:  the file that tells it
    why:     the error that ended the run; None: the file does not tell of an error
    entries: the last of those that were asked for, in order
    count:   how many were asked for
    waiting: what waited when the run failed
    """

    source: Path
    why: str | None
    entries: list[Entry]
    count: int
    waiting: list[str]


def run_story(run: Path, wanted: Wanted, last: int | None = None) -> RunStory:
    """The last entries that are wanted, or all of them; refused where nothing is told of the run."""
    directory = RunDirectory(run)
    directory.config()
    if directory.story.is_file():
        told = read_story(directory.story)
        found = [each for each in told.entries if wanted.takes(each)]
        kept = found if last is None else found[len(found) - min(last, len(found)) :]
        waiting = [line for line in told.waiting if _concerns(line, wanted)]
        return RunStory(directory.story, told.why, kept, len(found), waiting)
    if not directory.trace_path.is_file():
        raise BadInput(
            f"{run} has neither {directory.story.name}, which a run that fails leaves behind, nor a trace: "
            "train with --trace sampled or full"
        )
    count = 0

    def counted() -> Iterator[tuple[float, int, Entry]]:
        nonlocal count
        for entry in trace_entries(directory.trace_path):
            if wanted.takes(entry):
                count += 1
                yield entry.time, count, entry

    found_there = sorted(counted()) if last is None else sorted(heapq.nlargest(last, counted()))
    return RunStory(directory.trace_path, None, [entry for *_, entry in found_there], count, [])


def trace_entries(path: Path) -> Iterator[Entry]:
    """The tasks of a trace, as they are written there."""
    servers: dict[int, str] = {}
    zero = first_session(path)
    for event in events(path):
        if event["name"] == "process_name":
            servers[event["pid"]] = fit(str(event["args"].get("name")))
        elif event["ph"] == "X":
            yield _task_entry(event, servers.get(event["pid"], f"server {event['pid']}"), zero)


def _task_entry(event: dict[str, Any], server: str, zero: float) -> Entry:
    epoch, interval = (_whole(event["args"].get(name)) for name in ("epoch", "interval"))
    of_lambda = server.startswith(_LAMBDAS_OF)
    where = f"Lambda {event['tid']}" if of_lambda else f"thread {event['tid']}"
    of = ", ".join(
        f"{name} {value}" for name, value in (("interval", interval), ("epoch", epoch)) if value is not None
    )
    return Entry(
        zero + event["ts"] / 1e6,
        server,
        "task",
        fit(f"{event['name']} of {of}, {event['dur'] / 1e3:.3f} ms on {where}"),
        interval,
        epoch,
        to=server.removeprefix(_LAMBDAS_OF) if of_lambda else None,
        invocation=event["tid"] if of_lambda else None,
    )


def _whole(value: Any) -> int | None:
    return value if type(value) is int else None


def _concerns(line: str, wanted: Wanted) -> bool:
    """Whether a line of what waits is about what is wanted. The run's own always is."""
    if line.startswith("run:"):
        return True
    if wanted.server is not None and not line.startswith(f"{wanted.server}:"):
        return False
    numbers = {"interval": wanted.interval, "epoch": wanted.epoch, "Lambda": wanted.invocation}
    return all(
        re.search(rf"\b{noun} {number}\b|\b{noun}s \[[^\]]*\b{number}\b", line)
        for noun, number in numbers.items()
        if number is not None
    )
