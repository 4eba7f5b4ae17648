"""Files of text, plain or gzipped, in blocks of whole lines."""

import gzip
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from siafu.base.errors import BadInput

_MOST_LINE_BYTES = 256 << 20
_GZIP_MAGIC = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"


def whole_lines(file: IO[bytes], block_bytes: int, path: Path, *, skip_header: bool) -> Iterator[bytearray]:
    """The file in blocks of whole lines, each ending with a newline, without a byte order mark."""
    text = bytearray(read_some(file, len(_BOM), path))
    if text == _BOM:
        text.clear()
    while True:
        more = read_some(file, block_bytes, path)
        text += more
        if not more:
            break
        end = text.rfind(b"\n") + 1
        if end == 0:
            if len(text) > _MOST_LINE_BYTES:
                most = _MOST_LINE_BYTES >> 20
                raise BadInput(f"{path} has a line of more than {most} MB: it is no table of text")
            continue
        rest = text[end:]
        del text[end:]
        if skip_header:
            skip_header = not _blank_header(text)
        yield text
        text = rest
    if text:
        text += b"\n"
        if skip_header:
            _blank_header(text)
        yield text


def _blank_header(text: bytearray) -> bool:
    """Overwrite the first row by spaces, so that lines keep their numbers; whether there was one."""
    start = 0
    while start < len(text):
        end = text.index(b"\n", start)
        line = text[start:end].strip()
        if line and line[0] not in b"#%":
            text[:end] = bytes(byte if byte in b"\r\n" else 32 for byte in text[:end])
            return True
        start = end + 1
    return False


class Opened:
    """A file to read, unpacked if it is gzipped, and how far along it is."""

    def __init__(self, path: Path) -> None:
        try:
            self._raw = path.open("rb")
        except FileNotFoundError as error:
            raise BadInput(f"no file {path}: check the name") from error
        except OSError as error:
            raise BadInput(f"cannot read {path}: {error.strerror}") from error
        if not self._raw.seekable():
            self._raw.close()
            raise BadInput(f"{path} is a pipe, and siafu reads its input twice: save it to a file first")
        self._size = max(1, os.fstat(self._raw.fileno()).st_size)
        gzipped = self._raw.read(2) == _GZIP_MAGIC
        self._raw.seek(0)
        self._file: Any = gzip.GzipFile(fileobj=self._raw) if gzipped else self._raw

    def __enter__(self) -> tuple[IO[bytes], Callable[[], float]]:
        return self._file, lambda: min(1.0, self._raw.tell() / self._size)

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._raw.close()


def read_some(file: IO[bytes], count: int, path: Path) -> bytes:
    try:
        return file.read(count)
    except EOFError as error:
        raise BadInput(f"{path} is cut off: its gzip data ends too early; copy it again") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise BadInput(f"{path} is damaged: {error}; copy it again") from error
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror or error}") from error
