"""Code blocks of a page of the documentation, and what the page says about running them.

A fenced block of `python`, `console` or `sh`, or an indented one that begins with a command, is run. Comments, which
no reader sees, can stand before a block:

    <!-- not run: why -->                          none of the next block is run
    <!-- not run "siafu train pubmed", "…": why -->   the commands of the next block that begin so are not run
    <!-- compared -->                              every line that the next block shows must be printed, see `output.py`

What a page takes for granted (files, names) is made by `before/PAGE.py`, which is run first.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Kind = Literal["python", "shell"]

_KINDS: dict[str, Kind] = {"python": "python", "console": "shell", "sh": "shell", "bash": "shell"}
_COMMENT = re.compile(r"<!--\s*not run\b(.*?)-->", re.DOTALL)
_COMPARED = re.compile(r"<!--\s*compared\s*-->")
_FENCE = re.compile(r"(?m)^( *)```(\w+)[^\n]*\n(.*?)^\1```\s*$", re.DOTALL)
_INDENTED = re.compile(
    r"(?m)(?:^|(?<=\n))((?: {4}(?:\$ )?(?:siafu|pip|python3?|pytest|rsync|ssh|[A-Z_]+=\S+ )[^\n]*\n)(?:(?: {4}[^\n]*)?\n)*)"
)


_Found = tuple[
    int, int, str, int, str
]  # where it starts and stops, what it is, where its text begins, its text


@dataclass(frozen=True, slots=True)
class Block:
    """One block of code.

    line:     where its text begins in its page, from 1
    why_not:  why it is not run, or why some of its commands are not; None: all of it is
    left_out: beginnings of the commands that are not run; empty with a `why_not`: all of them
    compared: whether the lines that it shows must be printed
    """

    page: Path
    line: int
    kind: Kind
    text: str
    why_not: str | None = None
    left_out: tuple[str, ...] = ()
    compared: bool = False

    @property
    def skipped(self) -> bool:
        return self.why_not is not None and not self.left_out

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """Every block of a page, in order."""
    text = page.read_text()
    found = sorted([*_comments(text), *_fences(text), *_indented(text)])
    made: list[Block] = []
    said: tuple[str, tuple[str, ...]] | None = None
    compared = False
    end = 0
    for start, stop, what, first, body in found:
        if start < end:
            continue  # within another: an indented line of a fenced block, or a fence in a comment
        end = stop
        if what == "not run":
            said = _said(body)
            continue
        if what == "compared":
            compared = True
            continue
        if what == "other":
            said, compared = None, False
            continue
        why_not, left_out = said or (None, ())
        said, is_compared, compared = None, compared, False
        kind: Kind = "python" if what == "python" else "shell"
        made.append(Block(page, text.count("\n", 0, first) + 1, kind, body, why_not, left_out, is_compared))
    return made


def commands(block: Block) -> list[tuple[str, str]]:
    """The commands of a shell block, each with the lines that follow it as its output; those left out are not there."""
    joined = block.text.replace("\\\n", " ")
    prompted = any(line.startswith("$ ") for line in joined.splitlines())
    made: list[tuple[str, list[str]]] = []
    for line in joined.splitlines():
        if line.startswith("$ ") or (not prompted and line.strip() and not line.startswith("#")):
            made.append((line.removeprefix("$ ").strip(), []))
        elif made:
            made[-1][1].append(line)
    return [
        (command, "\n".join(output).rstrip("\n"))
        for command, output in made
        if not any(command.startswith(beginning) for beginning in block.left_out)
    ]


def words(command: str) -> list[str]:
    """A command line's words, without the comment behind it."""
    return shlex.split(command, comments=True)


def _said(body: str) -> tuple[str, tuple[str, ...]]:
    names, _, why = body.partition(":")
    assert why.strip(), f"'not run' without a reason: {body}"
    return why.strip(), tuple(re.findall(r'"([^"]+)"', names))


def _comments(text: str) -> Iterator[_Found]:
    for match in _COMMENT.finditer(text):
        yield match.start(), match.end(), "not run", match.start(1), match[1]
    for match in _COMPARED.finditer(text):
        yield match.start(), match.end(), "compared", match.start(), ""


def _fences(text: str) -> Iterator[_Found]:
    for match in _FENCE.finditer(text):
        indent = match[1]
        body = "\n".join(line.removeprefix(indent) for line in match[3].splitlines()) + "\n"
        yield match.start(), match.end(), _KINDS.get(match[2], "other"), match.start(3), body


def _indented(text: str) -> Iterator[_Found]:
    for match in _INDENTED.finditer(text):
        body = "\n".join(line.removeprefix("    ") for line in match[1].splitlines()) + "\n"
        yield match.start(), match.end(), "shell", match.start(1), body
