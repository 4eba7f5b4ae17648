"""Letters as they travel between processes: events as frames: one header (JSON), then each tensor's memory as it is.

Everything is checked against the event's own types before anything is made of it.
"""

import dataclasses
import inspect
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Literal, NewType, Union, get_args, get_origin, get_type_hints

from torch import Tensor

from siafu.cluster import requests as membership
from siafu.pipeline import events
from siafu.pipeline.events import Event
from siafu.pipeline.ids import Address
from siafu.runtime import requests
from siafu.runtime.letter import Letter
from siafu.wire.refusal import Refusal
from siafu.wire.tensors import MOST_TENSORS, Array, Buffer, Tensors, pack, unpack

PROTOCOL = 2
_MAGIC = b"siafu-letter" + bytes([PROTOCOL])
_LONGEST_HEADER = 1 << 20
_LONGEST_TEXT = 1 << 16


@dataclass(frozen=True, slots=True)
class Stamp:
    """Who sent a letter.

    life:   which of those that were `sender`, one after the other
    number: of the letter, among those from this life to the receiver
    """

    sender: Address
    life: int
    number: int


def encode(stamp: Stamp, letter: Letter) -> list[Buffer]:
    """The frames. The tensors are not copied: they must stay as they are until they are acknowledged."""
    described, buffers = pack({name: _array(each) for name, each in letter.tensors.items()})
    form = {
        "is": type(letter.event).__name__,
        "stamp": dataclasses.asdict(stamp),
        "event": dataclasses.asdict(letter.event),
        "places": letter.places,
        "tensors": described,
    }
    return [_MAGIC + json.dumps(form, separators=(",", ":")).encode(), *buffers]


def _array(tensor: Any) -> Array:
    return tensor.detach().contiguous().numpy() if isinstance(tensor, Tensor) else tensor


def decode(frames: Sequence[Buffer]) -> tuple[Stamp, Letter]:
    """What `encode` made; tensors are read-only views of the frames. Anything else is a Refusal."""
    if not 1 <= len(frames) <= MOST_TENSORS + 1:
        raise Refusal("frames", f"a letter of {len(frames)} frames")
    form = _parse(frames[0])
    if set(form) != {"is", "stamp", "event", "places", "tensors"}:
        raise Refusal("header", "a letter with other fields than it has")
    kind = _KINDS.get(form["is"]) if isinstance(form["is"], str) else None
    if kind is None:
        raise Refusal("header", "a letter of a kind that this protocol does not have")
    event: Event = _read(kind, form["event"])
    places: tuple[int, ...] = _read(tuple[int, ...], form["places"])
    tensors: Tensors = unpack(form["tensors"], frames[1:])
    return _read(Stamp, form["stamp"]), Letter(event, tensors, places, borrowed=True)


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
    """`value` as JSON has it, as the type that `hint` says, or a Refusal."""
    if isinstance(hint, NewType):
        return _read(hint.__supertype__, value)
    if dataclasses.is_dataclass(hint):
        return _read_dataclass(hint, value)
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return _read_optional(hint, value)
    if origin is Literal:
        if value in get_args(hint):
            return value
    elif origin is tuple and isinstance(value, list) and len(value) <= _LONGEST_TEXT:
        (each, _) = get_args(hint)
        return tuple(_read(each, item) for item in value)
    elif hint is float and type(value) in (int, float):
        return float(value)
    elif (
        hint in (int, bool, str) and type(value) is hint and (hint is not str or len(value) <= _LONGEST_TEXT)
    ):
        return value
    raise Refusal("field", f"a letter with a {type(value).__name__} where {hint} belongs")


def _read_optional(hint: Any, value: Any) -> Any:
    if value is None and NoneType in get_args(hint):
        return None
    (present,) = (each for each in get_args(hint) if each is not NoneType)
    return _read(present, value)


def _read_dataclass(hint: Any, value: Any) -> Any:
    fields = _fields(hint)
    if not isinstance(value, dict) or value.keys() != fields.keys():
        raise Refusal("field", f"a {hint.__name__} with other fields than it has")
    return hint(**{name: _read(kind, value[name]) for name, kind in fields.items()})


@lru_cache
def _fields(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {each.name: hints[each.name] for each in dataclasses.fields(kind)}


_KINDS: dict[str, type[Event]] = {
    name: kind
    for module in (events, requests, membership)
    for name, kind in vars(module).items()
    if inspect.isclass(kind) and issubclass(kind, Event) and kind is not Event
}
