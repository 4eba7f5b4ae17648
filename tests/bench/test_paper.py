"""The paper's rows in virtual time: those that were calibrated fit, and every ratio is shown."""

import json

import pytest

from siafu.bench.paper.cells import PaperRatio, run_of
from siafu.bench.paper.chart import chart
from siafu.bench.paper.dorylus import dorylus
from siafu.bench.paper.machines import INSTANCES
from siafu.bench.paper.published import BACKENDS, GRAPHS, TABLE_4
from siafu.bench.paper.report import as_json, markdown
from siafu.bench.paper.tasks import figure_10

pytestmark = pytest.mark.slow  # measures

AMAZON = TABLE_4[2]
FAR_OFF = PaperRatio("Table 4", "GCN amazon", "time, GPU : CPU", 0.5, 1.0)
CLOSE = PaperRatio("Figure 6", "amazon", "epoch, S=0 : pipe", 0.88, 0.8)


def test_value_is_one_over_time_and_cost() -> None:
    published = AMAZON.value("lambda") / AMAZON.value("gpu")
    assert published == pytest.approx(2.49, abs=0.01)


def test_tasks_of_the_calibrated_row_take_what_the_paper_says() -> None:
    for task in figure_10():
        assert task.predicted == pytest.approx(task.published, rel=0.35), task


def test_the_calibrated_row_takes_as_many_epochs_on_every_backend() -> None:
    epochs = [AMAZON.seconds[backend] / run_of(AMAZON, backend).seconds for backend in BACKENDS]
    assert max(epochs) / min(epochs) < 1.15


def test_lambdas_cost_what_the_calibrated_row_paid_for_them() -> None:
    def of_servers(dollars: float, seconds: float) -> float:
        servers = seconds / 3600 * AMAZON.servers * INSTANCES[AMAZON.instance].usd_hour
        return (dollars - servers) / servers

    found = run_of(AMAZON, "lambda")
    published = of_servers(AMAZON.dollars["lambda"], AMAZON.seconds["lambda"])
    assert of_servers(found.dollars, found.seconds) == pytest.approx(published, rel=0.1)


def test_dorylus_gathers_features_in_every_epoch() -> None:
    shape = GRAPHS["amazon"]
    gcn = dorylus("gcn", shape, 64, servers=8)
    widths = [gcn.work["train", stage.id].widths_in for stage in gcn.training.stages if stage.kind.reads]
    assert widths == [(300,), (64,), (64,)]
    assert [str(stage) for stage in gcn.training.stages] == ["T0", "G1", "T1", "G2", "∇T2", "∇G2", "∇T1"]


def test_every_ratio_is_in_the_report_and_in_the_chart() -> None:
    cells = [FAR_OFF, CLOSE]
    text = markdown(cells, [], [AMAZON])
    assert "| GCN amazon * | time, GPU : CPU | 0.50 | 1.00 | **2.00** |" in text
    assert "Within 25%: 1 of 2 (50%)" in text
    assert chart(cells).count("<circle") == len(cells) + 5
    assert [each["close"] for each in json.loads(as_json(cells, []))["cells"]] == [False, True]
