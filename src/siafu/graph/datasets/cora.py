"""Cora in its first form: `cora.content` (paper, words, class) and `cora.cites` (cited, citing)."""

from importlib.resources import files
from pathlib import Path

import numpy as np

from siafu.base.errors import BadInput
from siafu.base.storage.documents import one_line
from siafu.graph.graph import Graph

# As Planetoid numbers them.
CLASSES = (
    "Theory",
    "Reinforcement_Learning",
    "Genetic_Algorithms",
    "Neural_Networks",
    "Probabilistic_Methods",
    "Case_Based",
    "Rule_Learning",
)
_NUM_TRAIN, _NUM_VAL, _NUM_TEST = 140, 500, 1000


def public_order() -> list[str]:
    """The papers in the order in which Planetoid numbers them, on which the public split rests.

    The first 140 are for training, the next 500 for validation, the last 1,000 for testing. Found by matching words,
    class and neighbours of each paper; the few that these leave open are alike in all three, so it does not matter.
    """
    return files(__package__).joinpath("cora_public_order.txt").read_text().split()


def read_cora(folder: Path, order: list[str]) -> Graph:
    """The graph in `folder`, vertices in the given order, ids the papers' own."""
    number = {paper: vertex for vertex, paper in enumerate(order)}
    try:
        x, y = _read_content(folder / "cora.content", number)
        ends = [
            [number[paper] for paper in line.split()]
            for line in (folder / "cora.cites").read_text().splitlines()
        ]
        cited, citing = np.array(ends, np.int64).T
    except (OSError, LookupError, ValueError) as error:
        raise BadInput(f"{folder} is not Cora as published ({one_line(error)}): fetch it again") from error
    vertices = np.arange(len(order))
    return Graph.from_edges(
        citing,
        cited,
        num_vertices=len(order),
        undirected=True,
        merge_parallel=True,
        x=x,
        y=y,
        num_classes=len(CLASSES),
        train=vertices[:_NUM_TRAIN],
        val=vertices[_NUM_TRAIN : _NUM_TRAIN + _NUM_VAL],
        test=vertices[-_NUM_TEST:],
        ids=np.array(order, np.int64),
        name="cora",
    )


def _read_content(path: Path, number: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    rows = [line.split() for line in path.read_text().splitlines()]
    if len(rows) != len(number):
        raise ValueError(f"{path.name} has {len(rows)} papers instead of {len(number)}")
    x = np.zeros((len(rows), len(rows[0]) - 2), np.float32)
    y = np.empty(len(rows), np.int64)
    for paper, *words, kind in rows:
        x[number[paper]] = words
        y[number[paper]] = CLASSES.index(kind)
    return x, y
