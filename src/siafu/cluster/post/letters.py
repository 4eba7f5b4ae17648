"""Letters as they travel between processes: events as frames: one header (JSON), then each tensor's memory as it is.

Everything is checked against the event's own types before anything is made of it.
"""

import dataclasses
import inspect
import json
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from torch import Tensor

from siafu.base.typed import typed
from siafu.cluster.post import requests as membership
from siafu.pipeline import events
from siafu.pipeline.events import Event
from siafu.pipeline.ids import Address
from siafu.pipeline.stamp import Stamp
from siafu.runtime import requests
from siafu.runtime.letter import Letter
from siafu.wire.refusal import Refusal
from siafu.wire.tensors import MOST_TENSORS, Array, Buffer, Tensors, pack, unpack

PROTOCOL = 3
_MAGIC = b"siafu-letter" + bytes([PROTOCOL])
_LONGEST_HEADER = 1 << 20


@dataclass(frozen=True, slots=True)
class Postmark:
    """Sender of a letter, as the post knows it.

    life:   which of those that were `sender`, one after the other
    number: of the letter, among those from this life to the receiver
    """

    sender: Address
    life: int
    number: int


def encode(mark: Postmark, letter: Letter) -> list[Buffer]:
    """The frames. The tensors are not copied: they must stay as they are until they are acknowledged."""
    described, buffers = pack({name: _array(each) for name, each in letter.tensors.items()})
    form = {
        "is": type(letter.event).__name__,
        "mark": dataclasses.asdict(mark),
        "stamp": None if letter.stamp is None else dataclasses.asdict(letter.stamp),
        "event": dataclasses.asdict(letter.event),
        "places": letter.places,
        "tensors": described,
    }
    return [_MAGIC + json.dumps(form, separators=(",", ":")).encode(), *buffers]


def _array(tensor: Any) -> Array:
    return tensor.detach().contiguous().numpy() if isinstance(tensor, Tensor) else tensor


def decode(frames: Sequence[Buffer]) -> tuple[Postmark, Letter]:
    """Read what `encode` made; tensors are read-only views of the frames. Anything else is a Refusal."""
    if not 1 <= len(frames) <= MOST_TENSORS + 1:
        raise Refusal("frames", f"a letter of {len(frames)} frames")
    form = _parse(frames[0])
    if set(form) != {"is", "mark", "stamp", "event", "places", "tensors"}:
        raise Refusal("header", "a letter with other fields than it has")
    kind = _KINDS.get(form["is"]) if isinstance(form["is"], str) else None
    if kind is None:
        raise Refusal("header", "a letter of a kind that this protocol does not have")
    event: Event = _read(kind, form["event"])
    places: tuple[int, ...] = _read(tuple[int, ...], form["places"])
    tensors: Tensors = unpack(form["tensors"], frames[1:])
    mark: Postmark = _read(Postmark, form["mark"])
    stamp: Stamp | None = _read(Stamp | None, form["stamp"])
    if stamp is not None and (stamp.sender, stamp.life) != (mark.sender, mark.life):
        raise Refusal("field", f"a letter of {mark.sender} that is stamped as another's")
    return mark, Letter(event, tensors, places, borrowed=True, stamp=stamp)


def _parse(header: Buffer) -> dict[str, Any]:
    if len(header) > _LONGEST_HEADER or bytes(header[: len(_MAGIC)]) != _MAGIC:
        raise Refusal("header", "bytes that are no letter of this Siafu's: use one version on all machines")
    try:
        form = json.loads(bytes(header[len(_MAGIC) :]))
    except (ValueError, RecursionError) as error:
        raise Refusal("header", "a letter whose header is not JSON") from error
    if not isinstance(form, dict):
        raise Refusal("header", "a letter whose header is no JSON object")
    return form


def _read(hint: Any, value: Any) -> Any:
    """A value of JSON as the type `hint`, or a Refusal."""
    try:
        return typed(hint, value)
    except ValueError as error:
        raise Refusal("field", f"a letter with a field that cannot be: {error}") from error


def _events_of(module: ModuleType) -> dict[str, type[Event]]:
    return {
        name: kind
        for name, kind in vars(module).items()
        if inspect.isclass(kind) and issubclass(kind, Event) and kind is not Event
    }


_KINDS: dict[str, type[Event]] = {
    name: kind for module in (events, requests, membership) for name, kind in _events_of(module).items()
}


def admit_events(module: ModuleType) -> None:
    """Have letters of a module's events read, too, in this process."""
    _KINDS.update(_events_of(module))
