"""Imports of triples as tests make them."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.graph.triples import Triples, read_triples
from siafu.graph.triples.triple_import import ImportedTriples, TripleImport, import_triples
from siafu.graph.triples.triple_sources import TripleOptions

_OF_INPUT = set(TripleOptions.__dataclass_fields__)


def imported(source: Path, **options: Any) -> tuple[Triples, ImportedTriples]:
    """The triples that `siafu import` makes of `source`; options are those of TripleOptions and TripleImport."""
    target = source.parent / "imported.store"
    of_input = TripleOptions(**{name: value for name, value in options.items() if name in _OF_INPUT})
    others = {name: value for name, value in options.items() if name not in _OF_INPUT}
    done = import_triples(source, target, TripleImport(input=of_input, overwrite=True, **others))
    return read_triples(target), done


def by_name(triples: Triples, split: str = "train") -> set[tuple[Any, Any, Any]]:
    """The triples of a split by the names that they had in the source."""
    rows: NDArray[Any] = getattr(triples, split)
    entities = np.arange(triples.num_entities) if triples.ids is None else triples.ids
    relations = np.arange(triples.num_relations) if triples.relations is None else triples.relations
    return {(_text(entities[h]), _text(relations[r]), _text(entities[t])) for h, r, t in rows}


def _text(name: Any) -> Any:
    return name.decode() if isinstance(name, bytes) else int(name)
