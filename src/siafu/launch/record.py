"""Records of clusters that were started here: they are found again, and no other processes are ended.

    STATE/clusters/<name>/cluster.json    what it is, and since when
    STATE/clusters/<name>/cluster.yaml    what Ray's launcher was told, unless it is on this machine
    STATE/clusters/<name>/token           what a cluster on this machine asks for, for its user alone

STATE is $SIAFU_STATE, else siafu in the user's state directory. It is no cache: who deletes it must end clusters by hand.
"""

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import cast

from siafu.base.errors import BadInput
from siafu.base.storage.documents import parse_json
from siafu.base.storage.files import disk_errors, replacing
from siafu.launch.template import check_name


@dataclass(frozen=True, slots=True)
class Record:
    """One cluster.

    kind:      one of `template.KINDS`
    machines:  how many
    head:      where a run is driven from; None: on this machine, or known to AWS only
    user:      that ssh logs in as; None: on this machine
    address:   of Ray's head on this machine
    processes: on this machine: those that were started, each the first of a session of its own
    scratch:   on this machine: the directory that Ray writes to
    """

    name: str
    kind: str
    machines: int
    head: str | None = None
    user: str | None = None
    address: str | None = None
    processes: list[dict[str, int]] = field(default_factory=list)
    scratch: str | None = None


def state_directory() -> Path:
    if asked := os.environ.get("SIAFU_STATE"):
        return Path(asked).expanduser()
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "siafu"


def directory_of(name: str) -> Path:
    check_name(name)
    return state_directory() / "clusters" / name


def yaml_of(name: str) -> Path:
    """The file that Ray's launcher was given."""
    return directory_of(name) / "cluster.yaml"


def token_of(name: str) -> Path:
    """The file with the token of a cluster on this machine."""
    return directory_of(name) / "token"


def at(address: str) -> Record | None:
    """The record of the cluster on this machine at an address; "auto": of the only one; None: there is none."""
    local = []
    for path in state_directory().glob("clusters/*/cluster.json"):
        with suppress(BadInput):  # a damaged record is none of this cluster's business
            found = find(path.parent.name)
            if found is not None and found.kind == "local":
                local.append(found)
    if address == "auto":
        return local[0] if len(local) == 1 else None
    return next((each for each in local if each.address == address), None)


def write(record: Record) -> None:
    with replacing(directory_of(record.name) / "cluster.json") as file:
        file.write(json.dumps(asdict(record), indent=1).encode())


def _checked(record: Record) -> Record:
    """Check the types of a record's fields: it names processes to end and a directory to remove."""
    for each in fields(record):
        if each.name != "processes" and not isinstance(getattr(record, each.name), cast(type, each.type)):
            raise ValueError(f"its {each.name} is not one")
    if not isinstance(record.processes, list) or not all(map(_is_process, record.processes)):
        raise ValueError("its processes are none")
    return record


def _is_process(each: object) -> bool:
    return isinstance(each, dict) and all(
        isinstance(name, str) and type(value) is int for name, value in each.items()
    )


def find(name: str) -> Record | None:
    """The record of that name; None: there is none."""
    path = directory_of(name) / "cluster.json"
    try:
        return _checked(Record(**parse_json(path.read_bytes())))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise BadInput(
            f"{path} is damaged ({error}): end the cluster by hand, delete {path.parent}"
        ) from error


def get(name: str) -> Record:
    """The record of that name; an unknown one is refused with the names that there are."""
    found = find(name)
    if found is None:
        others = sorted(path.parent.name for path in state_directory().glob("clusters/*/cluster.json"))
        there = f"there are {', '.join(others)}" if others else "'siafu cluster up' starts one"
        raise BadInput(f"no cluster {name!r} was started from here: {there}")
    return found


def forget(name: str) -> None:
    """Remove the record and Siafu's files beside it; other files stay."""
    directory = directory_of(name)
    ours = [*directory.glob("cluster.json"), *directory.glob("cluster.yaml"), *directory.glob("ray-*.log")]
    with disk_errors(directory):
        for file in ours:
            file.unlink(missing_ok=True)
    with suppress(OSError):
        directory.rmdir()
