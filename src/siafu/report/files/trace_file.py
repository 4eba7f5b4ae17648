"""TraceFile: a run's tasks as spans, in Chrome's Trace Event Format: an array with an event on each line."""

import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from siafu.base.activity import Span, Taken
from siafu.base.storage.files import replacing
from siafu.report.files.sampling import Sampling

if TYPE_CHECKING:
    from siafu.runtime.happenings import EpochActivity

VERSION = 1
MOST_BYTES = 48 << 20
MOST_BYTES_FULL = 480 << 20

_BEGIN, _END = "session begins", "session ends"
_ROUND = 3  # digits after the decimal point of a microsecond


class _Track(NamedTuple):
    process: str
    number: int
    is_lambda: bool


class TraceFile:
    """The file of one run, open to write. Any method may raise OSError: a run can do without its trace.

    The closing bracket is there between sessions; while one lasts it is missing, as the format allows.

    epochs: those that are there in full
    """

    def __init__(self, path: Path, sampling: Sampling, *, keep_until: int = 0) -> None:
        """Open it; of what an earlier session left, the epochs up to `keep_until` stay."""
        self.epochs: list[int] = []
        self._path, self._sampling = path, sampling
        self._most = MOST_BYTES_FULL if sampling.full else MOST_BYTES
        self._dropped = 0
        self._last: tuple[int, EpochActivity] | None = None
        self._open(keep_until)

    def add(self, epoch: int, activity: "EpochActivity") -> None:
        """An epoch, counted from 1, has ended: its spans are written, or kept in case it was the last."""
        if self._sampling.wants(epoch):
            self._write_epoch(epoch, activity)
            self._last = None
        else:
            self._last = (epoch, activity)

    def drop(self, epoch: int, activity: "EpochActivity") -> None:
        """An epoch's spans are not written, since there is no time for it."""
        self._dropped += sum(len(taken.spans) for taken in (*activity.threads, *activity.lambdas))

    def keep_until(self, epoch: int) -> None:
        """Drop what was recorded of later epochs: a server was lost, or the run began anew before them."""
        self._last = None
        self._file.close()
        self._open(epoch)

    def close(self) -> None:
        """Write the last epoch, and what was left out."""
        try:
            if self._last is not None:
                self._write_epoch(*self._last)
            said = {"dropped": self._dropped, "epochs": self.epochs}
            self._file.write(_instant(_END, self._now(), said).removesuffix(",\n") + "\n]\n")
        finally:
            self._file.close()

    def _open(self, keep_until: int) -> None:
        kept = [each for each in events(self._path) if _epoch(each) <= keep_until and each["name"] != _END]
        self.epochs = sorted({_epoch(each) for each in kept if each["ph"] == "X"})
        self._zero = next(filter(None, map(_zero, kept)), time.time())
        self._processes: dict[str, int] = {}
        self._tracks: dict[_Track, tuple[int, int]] = {}
        with replacing(self._path) as file:
            file.write(b"[\n")
            file.writelines(_line(each).encode() for each in kept)
        self._size = self._path.stat().st_size
        self._file: IO[str] = self._path.open("a", encoding="utf-8")
        for each in kept:
            self._know_again(each)
        self._put(_instant(_BEGIN, self._now(), {"zero": self._zero, "version": VERSION}))
        self._file.flush()

    def _know_again(self, event: dict[str, Any]) -> None:
        """Servers and threads of an earlier session keep their numbers."""
        args, pid = event["args"], event["pid"]
        if event["name"] == "process_name":
            self._processes[str(args.get("name"))] = pid
        elif event["name"] == "thread_name" and pid in self._processes.values():
            named = {number: name for name, number in self._processes.items()}
            track = _Track(named[pid], event["tid"], str(args.get("name")).startswith("Lambda"))
            self._tracks[track] = (pid, event["tid"])

    def _write_epoch(self, epoch: int, activity: "EpochActivity") -> None:
        lines = [*self._lines(activity.threads, False), *self._lines(activity.lambdas, True)]
        dropped = sum(taken.dropped for taken in (*activity.threads, *activity.lambdas))
        self._dropped += dropped
        if self._size + sum(map(len, lines)) > self._most:
            self._dropped += len(lines)
            return
        for line in lines:
            self._put(line)
        if not dropped:
            self.epochs.append(epoch)
        self._file.flush()

    def _lines(self, taken: Iterable[Taken], is_lambda: bool) -> Iterator[str]:
        for each in taken:
            shift = each.zero - self._zero
            for span in each.spans:
                yield self._span_line(span, shift, is_lambda)

    def _span_line(self, span: Span, shift: float, is_lambda: bool) -> str:
        about = span.about
        server = f"Lambdas of {about.server}" if is_lambda else about.server
        pid, tid = self._track(_Track(server, span.track, is_lambda))
        # Both ends are rounded before they are subtracted: spans that touch never come to overlap.
        began, ended = (round(1e6 * (moment + shift), _ROUND) for moment in (span.began, span.ended))
        lane = span.kind.partition(" ")[0]
        lane = lane if lane in ("train", "evaluate") else "other"
        interval = "" if about.interval is None else f'"interval":{about.interval},'
        return (
            f'{{"name":{json.dumps(span.kind, ensure_ascii=False)},"cat":"{lane}","ph":"X","ts":{began:.3f},'
            f'"dur":{ended - began:.3f},"pid":{pid},"tid":{tid},'
            f'"args":{{"epoch":{about.epoch + 1},{interval}"bytes":{span.moved}}}}},\n'
        )

    def _track(self, track: _Track) -> tuple[int, int]:
        """Its numbers, and the first time, its names."""
        if track not in self._tracks:
            pid = self._processes.get(track.process)
            if pid is None:
                pid = self._processes[track.process] = len(self._processes) + 1
                self._put(_named("process_name", pid, 0, track.process))
            name = f"Lambda {track.number}" if track.is_lambda else f"thread {track.number}"
            self._put(_named("thread_name", pid, track.number, name))
            self._tracks[track] = (pid, track.number)
        return self._tracks[track]

    def _put(self, line: str) -> None:
        self._size += len(line)
        self._file.write(line)

    def _now(self) -> float:
        return round(1e6 * (time.time() - self._zero), _ROUND)


def events(path: Path) -> Iterator[dict[str, Any]]:
    """Every whole event of a trace file, also of one that is being written, was cut off, or is not there."""
    try:
        file = path.open(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return
    with file:
        for line in file:
            event = _parse(line)
            if event is not None:
                yield event


def first_session(path: Path) -> float:
    """When the run's first session began, in seconds since 1970, which times count from; 0.0: it is not known."""
    return next((zero for each in events(path) if (zero := _zero(each)) is not None), 0.0)


def _parse(line: str) -> dict[str, Any] | None:
    try:
        event = json.loads(line.strip().removesuffix(","))
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict):
        return None
    if not all(isinstance(event.get(name), kind) for name, kind in _FIELDS.items()):
        return None
    timed = all(type(event.get(name)) in (int, float) for name in _TIMES.get(event["ph"], ()))
    return event if timed else None


_FIELDS = {"pid": int, "tid": int, "name": str, "ph": str, "args": dict}
_TIMES = {"X": ("ts", "dur"), "i": ("ts",)}


def _epoch(event: dict[str, Any]) -> int:
    """0: of none."""
    found = event["args"].get("epoch") if event["ph"] == "X" else None
    return found if isinstance(found, int) else 0


def _zero(event: dict[str, Any]) -> float | None:
    """When the run's first session began, if the event tells of it."""
    found = event["args"].get("zero") if event["name"] == _BEGIN else None
    return found if isinstance(found, float) else None


def _line(event: dict[str, Any]) -> str:
    return json.dumps(event, ensure_ascii=False, separators=(",", ":")) + ",\n"


def _named(what: str, pid: int, tid: int, name: str) -> str:
    return _line({"name": what, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}})


def _instant(name: str, moment: float, args: dict[str, Any]) -> str:
    return _line(
        {"name": name, "cat": "other", "ph": "i", "s": "g", "ts": moment, "pid": 0, "tid": 0, "args": args}
    )
