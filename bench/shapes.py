"""Four models on graphs of four shapes, and edge functions on one, under PyG and under Siafu: the table of docs/performance.md.

    python bench/shapes.py [GRAPH …] [--models gcn,sage,gin,gat] [--cpu]

GRAPH: a name in ../shared/data (or $SIAFU_SHARED/data): flickr, amazon_cs, coauthor_cs, acl_papers by default. Models, graphs and epochs are those of
`pyg_models.py`, two epochs of PyG and six of Siafu. Features are mapped to so many columns that PyG's rows of edges take at most 1 GB.
--cpu: CPU seconds of all threads, for a machine that has other work.
"""

import os
import sys
import time
from pathlib import Path

import numpy as np
import pyg_models
from pyg_peer import pyg_epoch

GRAPHS = ("flickr", "amazon_cs", "coauthor_cs", "acl_papers")
MODELS = ("gcn", "sage", "gin", "gat")
EDGE_BYTES = 1 << 30
PYG_EPOCHS, SIAFU_EPOCHS = 2, 6


def main() -> None:
    words = sys.argv[1:]
    models = MODELS
    if "--models" in words:
        at = words.index("--models")
        models = tuple(words[at + 1].split(","))
        del words[at : at + 2]
    cpu = "--cpu" in words
    names = [word for word in words if not word.startswith("--")] or list(GRAPHS)
    print(
        f"{'graph':12} {'model':15} {'PyG, s':>8} {'Siafu, s':>9} {'ratio':>6}{' in CPU seconds' if cpu else ''}"
    )
    for name in names:
        path = path_of(name)
        graph = pyg_models.read(path, most_features(path))
        for model in models:
            clock = time.process_time if cpu else time.perf_counter
            theirs = pyg_epoch(graph, pyg_models.model_of(graph, model), PYG_EPOCHS, clock)
            run = pyg_models.cpu_epoch if cpu else pyg_models.siafu_epoch
            ours = run(graph, pyg_models.model_of(graph, model), SIAFU_EPOCHS)
            print(f"{name:12} {model:15} {theirs:8.3f} {ours:9.4f} {theirs / ours:6.1f}", flush=True)


def path_of(name: str) -> Path:
    shared = os.environ.get("SIAFU_SHARED")
    data = (Path(shared) if shared else Path(__file__).resolve().parents[2] / "shared") / "data"
    found = [data / folder / f"{name}.npz" for folder in ("graphs", "large")]
    return next(path for path in found if path.exists())


def most_features(path: Path) -> int:
    """Columns of which a row for each edge, both ways, takes `EDGE_BYTES`; 500 at most."""
    edges = 2 * len(np.load(path, allow_pickle=False)["src"])
    return min(500, EDGE_BYTES // (4 * edges))


if __name__ == "__main__":
    main()
