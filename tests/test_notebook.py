"""What notebooks show of graphs and runs."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import siafu
from siafu.report.files.metrics import EpochMetrics
from siafu.report.pages.plot import plot_history
from tests.sessions import gcn
from tests.toys import multi_label_graph, toy_graph

_SVG = "{http://www.w3.org/2000/svg}"


def test_a_graph_is_a_card_with_its_sizes() -> None:
    shown = toy_graph()._repr_html_()
    for said in ("210", "features", "classes", "training rows", "42"):
        assert said in shown
    ElementTree.fromstring(shown)


def test_names_in_cards_stay_text() -> None:
    shown = toy_graph(name="<img src=x onerror=alert(1)>")._repr_html_()
    assert "<img" not in shown
    ElementTree.fromstring(shown)


def test_a_run_is_a_card_with_what_came_of_it_and_can_be_plotted(tmp_path: Path) -> None:
    graph = multi_label_graph()
    run = siafu.train(graph, gcn(graph), epochs=5)
    shown = run._repr_html_()
    assert "test micro-F1" in shown
    ElementTree.fromstring(shown)
    run.plot().save(tmp_path / "plot.svg")
    drawn = ElementTree.parse(tmp_path / "plot.svg").getroot()
    lines = drawn.findall(f".//{_SVG}polyline")
    assert [len(line.attrib["points"].split()) for line in lines] == [5] * 5
    assert run.plot()._repr_svg_().startswith("<svg")


def test_a_plot_of_one_epoch_without_evaluation_is_a_plot() -> None:
    plot = plot_history([EpochMetrics(1, 0.5, None, None, None, None, 0.1, None)])
    assert len(ElementTree.fromstring(plot.svg).findall(f".//{_SVG}polyline")) == 1


def test_points_stand_where_their_numbers_are() -> None:
    history = [
        EpochMetrics(e, loss, None, None, None, None, 0.1, None) for e, loss in ((1, 2.0), (2, 1.0), (3, 0.0))
    ]
    (line,) = ElementTree.fromstring(plot_history(history).svg).findall(f".//{_SVG}polyline")
    points = [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
    assert points[1] == ((points[0][0] + points[2][0]) / 2, (points[0][1] + points[2][1]) / 2)
    assert points[0][1] < points[2][1]
