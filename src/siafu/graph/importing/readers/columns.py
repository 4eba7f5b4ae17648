"""Columns of a table: those that the user names, or those with well-known names."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from siafu.base.errors import BadInput
from siafu.base.storage.documents import one_line

SOURCE = ("src", "source", "from", "source_id", "src_id", "fromnodeid", "head", "u")
DESTINATION = ("dst", "target", "destination", "to", "target_id", "dst_id", "tonodeid", "tail", "v")
WEIGHT = ("weight", "edge_weight")
TYPE = ("edge_type", "etype")
VERTEX = ("id", "vertex", "vertex_id", "node", "node_id", "name")
LABEL = ("label", "y", "class")
SPLIT = ("split",)
MASKS = (("train_mask",), ("val_mask", "valid_mask", "validation_mask"), ("test_mask",))
"""Names of columns that say for each vertex whether it is in train, in val, in test."""

FILL_IN = "fill it in, with the column's mean or 0 for example, or take other columns with --feature-columns"
"""Advice on a vertex without one of its features."""

NUMBER_CLASSES = "number the classes from 0 up"
"""What to do with labels that are words."""

Asked = str | None
"""A column that the user names, or numbers from 0; None: one with a well-known name."""

KNOWN = frozenset((*SOURCE, *DESTINATION, *WEIGHT, *TYPE, *VERTEX, *LABEL, *SPLIT, *chain(*MASKS)))
_ATTR = re.compile(r"edge_attr([_.]?\d+)?", re.IGNORECASE)
_INDEX = re.compile(r"|Unnamed: \d+|__index_level_\d+__")
"""Names of the column with pandas' index: in CSV, in CSV that was read and written again, and in Parquet."""


def known_column(columns: Sequence[str] | None, names: Sequence[str]) -> int | None:
    """The position of the first of the well-known `names` that the header has."""
    lowered = [column.lower() for column in columns or ()]
    return next((lowered.index(name) for name in names if name in lowered), None)


def is_index(columns: Sequence[str] | None, position: int) -> bool:
    """Whether a column numbers a table's rows, as pandas writes it."""
    name = None if columns is None or position >= len(columns) else columns[position]
    return name is not None and _INDEX.fullmatch(name) is not None


def asked_column(path: Path, columns: Sequence[str] | None, count: int, asked: str) -> int:
    """The position of a column that the user named, or numbered from 0."""
    if columns is not None and asked in columns:
        return list(columns).index(asked)
    if asked.isdecimal() and int(asked) < count:
        return int(asked)
    there = (
        f"it has {one_line(', '.join(columns))}"
        if columns is not None
        else f"it has no header and {count} columns, counted from 0"
    )
    raise BadInput(f"{path} has no column {asked!r}: {there}")


def other_columns(columns: Sequence[str] | None, count: int, taken: Iterable[int | None]) -> tuple[str, ...]:
    """Names of the columns that are not taken; without a header their numbers, as options take them."""
    used = set(taken)
    names = columns if columns is not None else [f"column {position}" for position in range(count)]
    return tuple(_shown(name) for position, name in enumerate(names) if position not in used)


def names_of(columns: Sequence[str] | None, positions: Iterable[int]) -> tuple[str, ...]:
    """Names of the columns at these positions; without a header, none."""
    return () if columns is None else tuple(_shown(columns[position]) for position in positions)


def _shown(name: str) -> str:
    """A column's name in a message."""
    return name or "''"


class EdgePositions(NamedTuple):
    """Positions of the columns in a table of edges; None: there is no such column."""

    src: int
    dst: int
    weight: int | None
    features: list[int]
    type: int | None

    @property
    def taken(self) -> tuple[int | None, ...]:
        return (self.src, self.dst, self.weight, *self.features, self.type)


@dataclass(frozen=True, slots=True)
class EdgeColumns:
    """The columns that the user asked for; None: those with well-known names, and as ends else the first two.

    features: become `edge_attr`; by default columns called edge_attr, edge_attr_0, edge_attr_1, …
    type:     becomes `edge_type`
    """

    src: Asked = None
    dst: Asked = None
    weight: Asked = None
    features: tuple[str, ...] | None = None
    type: Asked = None

    @property
    def asked(self) -> list[str]:
        """Names or numbers that the user gave."""
        given = (self.src, self.dst, self.weight, *(self.features or ()), self.type)
        return [column for column in given if column is not None]

    def positions(self, path: Path, columns: Sequence[str] | None, count: int) -> EdgePositions:
        """Positions of the columns in a table."""
        asked = {asked_column(path, columns, count, name) for name in self.asked}
        if self.features is None:
            found = [n for n, name in enumerate(columns or ()) if _ATTR.fullmatch(name) and n not in asked]
        else:
            found = [asked_column(path, columns, count, name) for name in self.features]
        if self.type is None:
            kind = known_column(columns, TYPE)
            kind = None if kind in asked else kind
        else:
            kind = asked_column(path, columns, count, self.type)
        ends = edge_columns(path, columns, count, self.src, self.dst, self.weight, {*found, kind})
        chosen = [column for column in (*ends, *found, kind) if column is not None]
        twice = next((column for column in chosen if chosen.count(column) > 1), None)
        if twice is not None:
            name = repr(columns[twice]) if columns else str(twice)
            raise BadInput(f"{path}: column {name} is given for two things: name each column once")
        return EdgePositions(*ends, found, kind)


def edge_columns(
    path: Path,
    columns: Sequence[str] | None,
    count: int,
    src: Asked,
    dst: Asked,
    weight: Asked,
    others: Collection[int | None] = (),
) -> tuple[int, int, int | None]:
    """Positions of sources, destinations and weights; by default the well-known names, else the first two.

    others: columns that hold something else
    """
    source = known_column(columns, SOURCE) if src is None else asked_column(path, columns, count, src)
    target = known_column(columns, DESTINATION) if dst is None else asked_column(path, columns, count, dst)
    weights = known_column(columns, WEIGHT) if weight is None else asked_column(path, columns, count, weight)
    if weight is None and weights in (source, target):
        weights = None  # the column is asked for as an end
    chosen = [column for column in (source, target, weights) if column is not None]
    if len(set(chosen)) < len(chosen):
        raise BadInput(f"{path}: one column is given for two of source, destination and weight: name three")
    taken = (source, target, weights, *others)
    free = [column for column in range(max(2, count)) if column not in taken]
    no_index = [column for column in free if not is_index(columns, column)]
    if len(no_index) >= (source is None) + (target is None):
        free = no_index
    if source is None and free:
        source = free.pop(0)
    if target is None and free:
        target = free.pop(0)
    if source is None or target is None or (count and max(source, target) >= count):
        raise BadInput(
            f"{path} has {count} column{'' if count == 1 else 's'}: edges need a source and a destination; is the delimiter right?"
        )
    return source, target, weights


class VertexPositions(NamedTuple):
    """Positions of the columns in a table of vertices; None: there is no such column.

    masks: of the columns for train, val and test where there is no column `split`; empty: there are none
    """

    id: int
    label: int | None
    split: int | None
    features: list[int]
    masks: tuple[int | None, ...] = ()

    @property
    def taken(self) -> tuple[int | None, ...]:
        return (self.id, self.label, self.split, *self.features, *self.masks)

    @property
    def has_split(self) -> bool:
        return self.split is not None or bool(self.masks)


@dataclass(frozen=True, slots=True)
class VertexColumns:
    """The columns that the user asked for; None: those with well-known names, and as features all other numbers."""

    id: str | None = None
    label: str | None = None
    split: str | None = None
    features: tuple[str, ...] | None = None

    @property
    def asked(self) -> list[str]:
        """Names or numbers that the user gave."""
        given = (self.id, self.label, self.split, *(self.features or ()))
        return [column for column in given if column is not None]

    def positions(
        self, path: Path, columns: Sequence[str] | None, count: int, numeric: Sequence[int]
    ) -> VertexPositions:
        """Positions of the columns in a table; `numeric` lists the columns that hold numbers."""

        def found(asked: str | None, names: Sequence[str]) -> int | None:
            return (
                known_column(columns, names) if asked is None else asked_column(path, columns, count, asked)
            )

        ids = found(self.id, VERTEX)
        ids = 0 if ids is None else ids
        label, split = found(self.label, LABEL), found(self.split, SPLIT)
        masks = tuple(known_column(columns, names) for names in MASKS)
        if self.features is None:
            others = [column for column in numeric if column not in (ids, label, split, *masks)]
            features = [column for column in others if not is_index(columns, column)]
        else:
            features = [asked_column(path, columns, count, name) for name in self.features]
        taken = masks if split is None and masks[0] is not None else ()
        return VertexPositions(ids, label, split, features, taken)
