"""Another graph's features are the run's by their names, whatever their order."""

from pathlib import Path

import numpy as np
import pytest
import torch

import siafu
from siafu.errors import BadInput
from siafu.graph import Graph
from tests.toys import toy_graph

_NAMES = tuple("abcdefgh")


def _named(names: tuple[str, ...] = _NAMES) -> Graph:
    """The toy graph with columns of these names, each with what the name stands for."""
    graph = toy_graph()
    assert graph.x is not None
    return graph.replace(
        x=np.ascontiguousarray(graph.x[:, [_NAMES.index(name) for name in names]]), feature_names=names
    )


def _run(graph: Graph) -> siafu.Run:
    torch.manual_seed(0)
    return siafu.train(graph, siafu.nn.GCN(graph.num_features, 8, 2, graph.num_classes), epochs=2)


@pytest.fixture(scope="module")
def run() -> siafu.Run:
    return _run(_named())


@pytest.mark.parametrize("on_disk", [False, True])
def test_columns_in_another_order_give_the_same_scores_and_are_told(
    run: siafu.Run, tmp_path: Path, on_disk: bool
) -> None:
    lines: list[str] = []
    scratch = tmp_path if on_disk else None
    turned = run.logits(_named(_NAMES[::-1]), scratch=scratch, told=lines.append)
    assert torch.equal(turned, run.logits(_named()))
    assert lines == [
        "features of toy are in another order than the run's (a, b, c, d, e, f, g, h): they are taken by their names"
    ]


def test_other_names_are_refused_with_what_differs(run: siafu.Run) -> None:
    graph = _named()
    with pytest.raises(BadInput, match=r"it lacks b and also has z; .*--feature-columns a,b,c,d,e,f,g,h"):
        run.predict(graph.replace(feature_names=("a", "z", *_NAMES[2:])))
    with pytest.raises(BadInput, match="it also has i"):
        run.predict(graph.replace(x=np.ones((210, 9), np.float32), feature_names=(*_NAMES, "i")))


def test_columns_of_one_name_are_never_guessed() -> None:
    twice = ("a", "a", *_NAMES[2:])
    run = _run(_named().replace(feature_names=twice))
    assert torch.equal(
        run.logits(_named().replace(feature_names=twice)), run.logits(_named().replace(feature_names=()))
    )
    with pytest.raises(BadInput, match="some have one name"):
        run.predict(_named().replace(feature_names=twice[::-1]))


def test_features_without_names_are_known_by_their_number(run: siafu.Run) -> None:
    assert torch.equal(run.logits(_named().replace(feature_names=())), run.logits(_named()))
