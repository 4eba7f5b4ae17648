"""Small knowledge graphs that can be learnt."""

from pathlib import Path
from typing import Any

import numpy as np

from siafu.embedding.embed_options import EmbedOptions
from siafu.graph.triples import Triples

SMALL: dict[str, Any] = {"dim": 16, "batch": 100, "negatives": 20, "chunk": 50, "epochs": 3, "lr": 0.1}
"""Options that take no time."""


def small_options(**more: Any) -> EmbedOptions:
    return EmbedOptions(**{**SMALL, **more})


def families(count: int = 12, size: int = 10, *, seed: int = 0) -> Triples:
    """Entities of some families: `sibling` holds within one, `rival` leads from each family to the next. A tenth is held out."""
    rng = np.random.default_rng(seed)
    members = np.arange(count * size).reshape(count, size)
    facts = [(a, 0, b) for family in members for a in family for b in family if a != b]
    facts += [(a, 1, b) for k in range(count) for a in members[k] for b in members[(k + 1) % count][:4]]
    rows = np.array(facts)[rng.permutation(len(facts))]
    part = len(rows) // 10
    return Triples.from_arrays(rows[2 * part :], rows[:part], rows[part : 2 * part], name="families")


def write_families(path: Path) -> Path:
    """The same as a folder of text, by names with spaces."""
    triples = families()
    path.mkdir()
    for split in ("train", "valid", "test"):
        rows = getattr(triples, split).tolist()
        (path / f"{split}.tsv").write_text(
            "".join(f"member {h}\t{('sibling of', 'rival of')[r]}\tmember {t}\n" for h, r, t in rows)
        )
    return path
