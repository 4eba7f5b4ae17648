"""Manifests: JSON that describes the files next to it, with a checksum of its own."""

import json
import zlib
from typing import Any

_CHECKSUM = "checksum"


def sealed(fields: dict[str, Any]) -> bytes:
    """A manifest to write, with the checksum that these fields have."""
    return json.dumps({**fields, _CHECKSUM: _checksum(fields)}, indent=1).encode()


def is_intact(fields: dict[str, Any]) -> bool:
    """Whether a manifest says what was written. One without a checksum is of a Siafu that wrote none, and passes."""
    return _CHECKSUM not in fields or fields[_CHECKSUM] == _checksum(fields)


def _checksum(fields: dict[str, Any]) -> int:
    """The CRC-32 of what the other fields say, however they are spaced and ordered."""
    others = {name: value for name, value in fields.items() if name != _CHECKSUM}
    return zlib.crc32(json.dumps(others, sort_keys=True, separators=(",", ":")).encode())
