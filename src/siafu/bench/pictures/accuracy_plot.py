"""Validation accuracy over CPU seconds of training, as SVG: one panel a dataset."""

from collections.abc import Sequence

from siafu.bench.accuracy import Accuracy
from siafu.bench.accuracy_trial import PEER, WAYS
from siafu.bench.pictures.curve_panels import CurvePanel, CurveStyle, plot_panels

_COLOURS = dict(zip((*WAYS, PEER), ("#222222", "#1b7fc4", "#e07b00", "#3a9a3a"), strict=True))
_STYLE = CurveStyle(0.2, 'stroke-width="1.2" stroke-opacity="0.8"', _COLOURS)


def plot(results: Sequence[Accuracy]) -> str:
    """Validation accuracy over CPU seconds of training, a line for each training, with the target as a dashed line."""
    return plot_panels([_panel(each) for each in results], _STYLE)


def _panel(result: Accuracy) -> CurvePanel:
    trials = [(way, each) for way, every in result.trials.items() for each in every]
    last = max(len(each.val) * result.cpu[way] for way, each in trials)
    return CurvePanel(
        result.dataset,
        result.target,
        [
            (_COLOURS[way], [(epoch * result.cpu[way], val) for epoch, val in enumerate(each.val, 1)])
            for way, each in trials
        ],
        "CPU seconds of training",
        0.0,
        last,
        [(k * last / 4, f"{k * last / 4:.3g}") for k in range(5)],
    )
