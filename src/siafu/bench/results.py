"""Results of benchmarks: generated graphs to take them on, files to keep them in, tables to show them in."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from siafu.base.errors import BadInput
from siafu.base.storage.files import replace_text
from siafu.base.storage.owned import OwnedDirectory
from siafu.base.typed import typed
from siafu.graph import Graph, read_store
from siafu.graph.generate import generate, shape_named

T = TypeVar("T")


@contextmanager
def generated(name: str, scale: float) -> Iterator[Graph]:
    """A graph that `siafu generate` makes, removed again at the end."""
    with OwnedDirectory() as directory:
        path = directory / "graph"
        generate(shape_named(name).scaled(scale), path)
        yield read_store(path, verify=False)


def save_results(results: Iterable[Any], path: Path) -> None:
    """Write dataclasses as a JSON list."""
    replace_text(path, json.dumps([asdict(each) for each in results]))


def read_results(path: Path, bench: str, kind: type[T]) -> list[T]:
    """Dataclasses of this kind that `save_results` wrote; nothing where there is no such file."""
    if not path.exists():
        return []
    try:
        found: list[T] = typed(list[kind], json.loads(path.read_text()))  # type: ignore[valid-type]
        return found
    except ValueError as error:
        raise BadInput(f"{path} does not hold results of 'siafu bench {bench}': {error}") from error


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])
