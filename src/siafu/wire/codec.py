"""Messages as frames: one small header (who we are, version, JSON), then each tensor's memory as it is.

Everything is checked before it is used; sizes are checked against the frames that really came.
"""

import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import Any, get_args, get_type_hints

from siafu.wire.messages import Message
from siafu.wire.refusal import Refusal
from siafu.wire.tensors import MOST_TENSORS, Buffer, Tensors, is_name, pack, unpack

PROTOCOL = 5
LONGEST_HEADER = 1 << 17
_MAGIC = b"siafu"
_START = len(_MAGIC) + 1
_LONGEST_TEXT = 1000
_MOST_NAMES = 1024


def encode(message: Message) -> list[Buffer]:
    """The frames of a message. Its tensors are not copied: they must stay as they are until they were sent."""
    form: dict[str, Any] = {"is": type(message).__name__}
    buffers: list[Buffer] = []
    for name, _ in _FIELDS[type(message).__name__]:
        form[name] = getattr(message, name)
    if "tensors" in form:
        form["tensors"], buffers = pack(form["tensors"])
    header = _MAGIC + bytes([PROTOCOL]) + json.dumps(form, separators=(",", ":")).encode()
    if len(header) > LONGEST_HEADER or len(buffers) > MOST_TENSORS:
        raise ValueError(f"a {form['is']} that is too large to send: {len(header)} bytes of header")
    return [header, *buffers]


def decode(frames: Sequence[Buffer]) -> Message:
    """The message in frames that `encode` made; tensors are read-only views of them. Anything else is a Refusal."""
    if not 1 <= len(frames) <= MOST_TENSORS + 1:
        raise Refusal("frames", f"a message of {len(frames)} frames")
    form = _parse(frames[0])
    kind = form.pop("is", None)
    if not isinstance(kind, str) or kind not in _FIELDS:
        raise Refusal("header", "a message of a kind that this protocol does not have")
    fields = _FIELDS[kind]
    if set(form) != {name for name, _ in fields}:
        raise Refusal("field", f"a {kind} with other fields than it has")
    for name, read in fields:
        if read is not None:
            form[name] = read(kind, name, form[name])
    if "tensors" in form:
        form["tensors"] = unpack(form["tensors"], frames[1:])
    elif len(frames) > 1:
        raise Refusal("frames", f"a {kind} with frames, which has no tensors")
    message: Message = _KINDS[kind](**form)
    return message


def size(frames: Sequence[Buffer]) -> int:
    """Bytes that a message takes on the wire, without the transport's own."""
    return sum(map(len, frames))


def _parse(header: Buffer) -> dict[str, Any]:
    if len(header) > LONGEST_HEADER:
        raise Refusal("frames", f"a header of {len(header)} bytes")
    if bytes(header[: len(_MAGIC)]) != _MAGIC or len(header) < _START:
        raise Refusal("header", "bytes that are no message of Siafu's")
    if header[len(_MAGIC)] != PROTOCOL:
        raise Refusal(
            "version",
            f"protocol {header[len(_MAGIC)]}, where this Siafu speaks {PROTOCOL}: deploy the Lambda again",
        )
    try:
        form = json.loads(bytes(header[_START:]))
    except (ValueError, RecursionError) as error:
        raise Refusal("header", "a header that is not JSON") from error
    if not isinstance(form, dict):
        raise Refusal("header", "a header that is no JSON object")
    return form


def _read_number(kind: str, name: str, value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise Refusal("field", f"a {kind} whose {name!r} is no whole number from 0 up")
    return value


def _read_text(kind: str, name: str, value: Any) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST_TEXT or not value.isprintable():
        raise Refusal("field", f"a {kind} whose {name!r} is no line of at most {_LONGEST_TEXT} characters")
    return value


def _read_names(kind: str, name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > _MOST_NAMES or not all(map(is_name, value)):
        raise Refusal("field", f"a {kind} whose {name!r} are no names, at most {_MOST_NAMES}")
    if len(set(value)) != len(value):
        raise Refusal("field", f"a {kind} whose {name!r} are not all different")
    return tuple(value)


_Read = Callable[[str, str, Any], Any]
_READERS: dict[Any, _Read | None] = {
    int: _read_number,
    str: _read_text,
    tuple[str, ...]: _read_names,
    Tensors: None,  # read together with the frames
}
_KINDS: dict[str, Any] = {each.__name__: each for each in get_args(Message)}
_FIELDS: dict[str, list[tuple[str, _Read | None]]] = {
    name: [(each.name, _READERS[get_type_hints(kind)[each.name]]) for each in dataclasses.fields(kind)]
    for name, kind in _KINDS.items()
}
