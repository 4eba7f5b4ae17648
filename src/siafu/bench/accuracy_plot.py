"""Validation accuracy over seconds of training, as SVG: one panel a dataset."""

from collections.abc import Sequence

from siafu.bench.accuracy import WAYS, Accuracy
from siafu.bench.curve_panels import CurvePanel, CurveStyle, plot_panels

_COLOURS = dict(zip(WAYS, ("#222222", "#1b7fc4", "#e07b00"), strict=True))
_STYLE = CurveStyle(0.2, 'stroke-width="1.2" stroke-opacity="0.8"', _COLOURS)


def plot(results: Sequence[Accuracy]) -> str:
    """Validation accuracy over seconds of training, a line for each training, with the target as a dashed line."""
    return plot_panels([_panel(each) for each in results], _STYLE)


def _panel(result: Accuracy) -> CurvePanel:
    trials = [(_COLOURS[way], each) for way in WAYS for each in result.trials[way]]
    last = max(each.seconds[-1] for _, each in trials)
    return CurvePanel(
        result.dataset,
        result.target,
        [(colour, list(zip(each.seconds, each.val, strict=True))) for colour, each in trials],
        "seconds of training",
        0.0,
        last,
        [(k * last / 4, f"{k * last / 4:.3g}") for k in range(5)],
    )
