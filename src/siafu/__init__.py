"""Siafu trains graph neural networks on whole graphs, on CPUs.

Names are loaded when first used, so that `import siafu` does not wait for PyTorch and Numba.
"""

import os

# Nothing else is imported here, `typing` neither: until `siafu.__main__` takes Ctrl-C, it would end in Python's traceback.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from siafu import nn as nn
    from siafu.base.errors import SiafuError as SiafuError
    from siafu.base.version import __version__ as __version__
    from siafu.embedding.embed import embed as embed
    from siafu.embedding.embedding_run import EmbeddingRun as EmbeddingRun
    from siafu.graph import Graph as Graph
    from siafu.graph.datasets import load as load
    from siafu.graph.interactions import Interactions as Interactions
    from siafu.graph.several_types import VertexTypes as VertexTypes
    from siafu.graph.triples import Triples as Triples
    from siafu.planning.plan import plan as plan
    from siafu.report.frames import read_metrics as read_metrics
    from siafu.training.linking.links import LinkRun as LinkRun
    from siafu.training.linking.links import train_links as train_links
    from siafu.training.linking.ranks import RankRun as RankRun
    from siafu.training.linking.ranks import train_ranks as train_ranks
    from siafu.training.linking.triples import train_triples as train_triples
    from siafu.training.outputs.smoothing import correct_and_smooth as correct_and_smooth
    from siafu.training.outputs.smoothing import label_propagation as label_propagation
    from siafu.training.run import Run as Run
    from siafu.training.step import compile as compile
    from siafu.training.sweep import sweep as sweep
    from siafu.training.train import train as train

# PyTorch's threads spin while they wait for each other, on cores that our kernels or other processes could use:
# on a busy machine an epoch then takes many times as long. Read when PyTorch is first imported; yours if you set it.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

__all__ = [
    "EmbeddingRun",
    "Graph",
    "Interactions",
    "LinkRun",
    "RankRun",
    "Run",
    "SiafuError",
    "Triples",
    "VertexTypes",
    "compile",
    "correct_and_smooth",
    "embed",
    "label_propagation",
    "load",
    "nn",
    "plan",
    "read_metrics",
    "sweep",
    "train",
    "train_links",
    "train_ranks",
    "train_triples",
]

_HOMES = {
    "EmbeddingRun": "siafu.embedding.embedding_run",
    "Graph": "siafu.graph",
    "Interactions": "siafu.graph.interactions",
    "LinkRun": "siafu.training.linking.links",
    "RankRun": "siafu.training.linking.ranks",
    "Run": "siafu.training.run",
    "SiafuError": "siafu.base.errors",
    "Triples": "siafu.graph.triples",
    "VertexTypes": "siafu.graph.several_types",
    "__version__": "siafu.base.version",
    "compile": "siafu.training.step",
    "correct_and_smooth": "siafu.training.outputs.smoothing",
    "embed": "siafu.embedding.embed",
    "label_propagation": "siafu.training.outputs.smoothing",
    "load": "siafu.graph.datasets",
    "nn": "siafu.nn",
    "plan": "siafu.planning.plan",
    "read_metrics": "siafu.report.frames",
    "sweep": "siafu.training.sweep",
    "train": "siafu.training.train",
    "train_links": "siafu.training.linking.links",
    "train_ranks": "siafu.training.linking.ranks",
    "train_triples": "siafu.training.linking.triples",
}


def __getattr__(name: str) -> "Any":
    if name not in _HOMES:
        raise AttributeError(f"module 'siafu' has no attribute {name!r}")
    from importlib import import_module

    home = import_module(_HOMES[name])
    value = home if name == "nn" else getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
