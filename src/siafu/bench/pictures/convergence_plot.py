"""Learning curves as SVG: one panel a dataset."""

from collections.abc import Sequence
from itertools import cycle

from siafu.bench.convergence import VARIANTS, Convergence
from siafu.bench.pictures.curve_panels import CurvePanel, CurveStyle, plot_panels

_COLOURS = dict(zip(VARIANTS, cycle(("#222222", "#1b7fc4", "#e07b00", "#2a9d4a", "#b03a8c")), strict=False))
_STYLE = CurveStyle(0.15, 'stroke-width="1.5"', _COLOURS)


def plot(results: Sequence[Convergence]) -> str:
    """The mean validation accuracy of every variant, epoch by epoch, with the target as a dashed line."""
    return plot_panels([_panel(each) for each in results], _STYLE)


def _panel(result: Convergence) -> CurvePanel:
    last = result.setting.epochs
    ticks = [max(1, round(k * last / 4)) for k in range(5)]
    return CurvePanel(
        result.dataset,
        result.target,
        [(_COLOURS[variant], list(enumerate(result.curve(variant), 1))) for variant in result.trials],
        "epoch",
        1,
        last,
        [(epoch, str(epoch)) for epoch in ticks],
    )
