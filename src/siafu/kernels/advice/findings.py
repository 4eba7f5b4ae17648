"""Findings: what the advisor measured on a graph, kept for the next run on this kind of machine.

    STORE/advice/<machine>.json           beside the graph
    CACHE/advice/<graph>/<machine>.json   where the store cannot be written to

A file that is not as it should be is as good as none: everything in it can be found again.
"""

import hashlib
import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from siafu.base.errors import SiafuError
from siafu.base.hardware.caches import cache_bytes
from siafu.base.hardware.machine import cpu_id, processor_name
from siafu.base.storage.documents import parse_json
from siafu.base.storage.files import cache_directory, replace_text
from siafu.base.threads import thread_count

_FORMAT, _VERSION = "siafu findings", 1
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found about one kind of work.

    way:     the number of the way that is fastest
    seconds: CPU seconds of each way that was timed, by its number
    """

    way: int
    seconds: dict[int, float]


@dataclass(slots=True)
class Findings:
    """Findings by the work that they are about.

    places: files to read from and write to, the best first; (): they live as long as the process
    found:  what is known
    """

    places: tuple[Path, ...] = ()
    found: dict[str, Finding] = field(default_factory=dict)

    @classmethod
    def beside(cls, store: Path) -> "Findings":
        """Those of the graph in a store, for this machine."""
        name = hashlib.sha256(str(store.resolve()).encode()).hexdigest()[:16]
        file = f"{machine_name()}.json"
        places = store / "advice" / file, cache_directory() / "advice" / name / file
        findings = cls(places)
        for place in reversed(places):
            findings.found |= _read(place)
        return findings

    def keep(self) -> Path | None:
        """Write them where that can be done, with what others found since; where that is."""
        for place in self.places:
            self.found = _read(place) | self.found
        text = json.dumps(self._as_json(), indent=1) + "\n"
        for place in self.places:
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
                replace_text(place, text)
            except (OSError, SiafuError):
                continue
            return place
        return None

    def _as_json(self) -> dict[str, Any]:
        found = {
            work: {"way": each.way, "seconds": {str(way): value for way, value in each.seconds.items()}}
            for work, each in sorted(self.found.items())
        }
        return {"format": _FORMAT, "version": _VERSION, "machine": _machine(), "found": found}


_in_memory: dict[tuple[int, ...], Findings] = {}


def findings_in_memory(graph: tuple[int, ...]) -> Findings:
    """Those of a graph without a store, by numbers that tell it from others: they live as long as the process."""
    return _in_memory.setdefault(graph, Findings())


@cache
def machine_name() -> str:
    """Short name of all machines with this processor, these caches and so many threads."""
    return hashlib.sha256(json.dumps(_machine()).encode()).hexdigest()[:12]


def _machine() -> dict[str, Any]:
    return {
        "processor": processor_name(),
        "model": cpu_id(),
        "caches": [cache_bytes(2), cache_bytes(3)],
        "threads": thread_count(),
    }


def _read(file: Path) -> dict[str, Finding]:
    try:
        if file.stat().st_size > _MOST_BYTES:
            return {}
        said = parse_json(file.read_bytes())
        if (said["format"], said["version"], said["machine"]) != (_FORMAT, _VERSION, _machine()):
            return {}
        return {
            str(work): Finding(
                int(each["way"]), {int(way): float(value) for way, value in each["seconds"].items()}
            )
            for work, each in said["found"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
