"""`siafu story`: what happened to an interval, a server or a Lambda of a run, and what waits."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from siafu.base.errors import BadInput
from siafu.base.option import argument, option
from siafu.cli.common import printable
from siafu.cli.declared import json_flag

if TYPE_CHECKING:
    from siafu.report.run_story import RunStory

_SERVER = re.compile(r"(?:(graph|weight)[- ](?:server )?)?([0-9]{1,6})")


def story(
    run: Path = argument("RUN", "The run's directory."),
    interval: int | None = option(None, "Only what is about this interval, counted from 0.", least=0),
    epoch: int | None = option(None, "Only what is about this epoch, counted from 1.", least=1),
    server: str | None = option(
        None, "Only what this graph server did: 0, 1 …; or weight-0, run.", metavar="N"
    ),
    lambda_: int | None = option(
        None,
        "Only what this Lambda did: an invocation's number; in a trace, its slot.",
        least=0,
        flags=("--lambda",),
    ),
    last: int = option(50, "How many lines to show: the last ones; 0: all.", least=0),
    as_json: bool = json_flag(),
) -> None:
    """Say what happened in a run, in order, and what waits for what.

    Of a run that failed: events and instructions of its machines, from RUN/story.jsonl. Of any other: its tasks, from
    RUN/trace.json.
    """
    from siafu.report.files.story_file import as_json as entry_json
    from siafu.report.run_story import run_story
    from siafu.runtime.story import Wanted

    wanted = Wanted(interval, epoch, server=_server(server), invocation=lambda_)
    found = run_story(run, wanted, last or None)
    if as_json:
        told = {
            "source": found.source.name,
            "why": found.why,
            "count": found.count,
            "entries": [entry_json(each) for each in found.entries],
            "waiting": found.waiting,
        }
        print(json.dumps(told, ensure_ascii=False))
        return
    for line in _lines(found):
        print(printable(line))


def _lines(found: "RunStory") -> list[str]:
    kind = "the tasks of its trace" if found.why is None else f"the run failed: {found.why}"
    shown = len(found.entries)
    fewer = f", the last {shown:,} (--last 0 shows all)" if shown < found.count else ""
    lines = [f"{found.source}: {kind}", f"{found.count:,} entries{fewer}:", *map(str, found.entries)]
    return lines if found.why is None else [*lines, "What waits:", *found.waiting]


def _server(text: str | None) -> str | None:
    """The server's name as entries have it."""
    if text is None or text == "run":
        return text
    named = _SERVER.fullmatch(text)
    if named is None:
        raise BadInput(f"--server is {text!r}: give a graph server's number, or graph-N, weight-N or run")
    return f"{named[1] or 'graph'} server {int(named[2])}"
