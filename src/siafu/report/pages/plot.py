"""Plot: a run's loss and its metric as a picture, without any library."""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from siafu.base.storage.files import replace_text
from siafu.objective.metric import ACCURACY, Metric
from siafu.report.files.metrics import EpochMetrics

_WIDTH, _HEIGHT, _MARGIN = 420, 260, 46
_COLOURS = ("#2a78d2", "#c05a12", "#2a9159")
_DASHES = ("", "6 3", "2 3")

NamedCurve = tuple[str, list[tuple[int, float]]]


@dataclass(frozen=True, slots=True)
class Plot:
    """An SVG image; notebooks show it."""

    svg: str

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> None:
        """Write an .svg file."""
        replace_text(Path(path), self.svg)


def plot_history(history: Sequence[EpochMetrics], metric: Metric = ACCURACY) -> Plot:
    """Loss beside the metric, over the epochs."""
    losses = [_curve(history, "train_loss", "training"), _curve(history, "val_loss", "validation")]
    scores = [
        _curve(history, f"{split}_accuracy", name)
        for split, name in (("train", "training"), ("val", "validation"), ("test", "test"))
    ]
    scale, unit = (100.0, " %") if metric.is_share else (1.0, "")
    panels = [("loss", losses, 1.0, ""), (metric.words, scores, scale, unit)]
    inner = "".join(
        f'<g transform="translate({place * _WIDTH} 0)">{_panel(*panel)}</g>'
        for place, panel in enumerate(panels)
    )
    last = history[-1]
    said = html.escape(
        f"Loss and {metric.words} over {last.epoch} epochs; the last loss is {last.train_loss:.4f}"
    )
    return Plot(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * _WIDTH} {_HEIGHT}" width="{2 * _WIDTH}" '
        f'role="img" aria-label="{said}" font-family="system-ui, sans-serif" font-size="11" fill="currentColor">'
        f"<title>{said}</title>{inner}</svg>"
    )


def _curve(history: Sequence[EpochMetrics], field: str, name: str) -> NamedCurve:
    found = [(epoch.epoch, getattr(epoch, field)) for epoch in history]
    return name, [(epoch, value) for epoch, value in found if value is not None]


def _panel(title: str, curves: list[NamedCurve], scale: float, unit: str) -> str:
    shown = [(name, points) for name, points in curves if points]
    heights = [scale * value for _, points in shown for _, value in points]
    if not heights:
        return ""
    first, last = (pick(epoch for _, points in shown for epoch, _ in points) for pick in (min, max))
    low, high = min(heights), max(heights)
    right, bottom = _WIDTH - 12, _HEIGHT - _MARGIN

    def at(epoch: int, value: float) -> str:
        x = _MARGIN + (epoch - first) / max(1, last - first) * (right - _MARGIN)
        y = bottom - (scale * value - low) / ((high - low) or 1.0) * (bottom - 28)
        return f"{x:.1f},{y:.1f}"

    parts = [
        f'<text x="{_MARGIN}" y="16" font-weight="600">{html.escape(title)}</text>',
        f'<path d="M{_MARGIN} 28V{bottom}H{right}" fill="none" stroke="currentColor" opacity=".4"/>',
        f'<text x="{_MARGIN - 4}" y="32" text-anchor="end">{high:.3g}{unit}</text>',
        f'<text x="{_MARGIN - 4}" y="{bottom}" text-anchor="end">{low:.3g}{unit}</text>',
        f'<text x="{_MARGIN}" y="{bottom + 14}">epoch {first}</text>',
        f'<text x="{right}" y="{bottom + 14}" text-anchor="end">{last}</text>',
    ]
    for place, (name, points) in enumerate(shown):
        look = f'stroke="{_COLOURS[place]}" stroke-width="2" stroke-dasharray="{_DASHES[place]}" fill="none"'
        line = " ".join(at(epoch, value) for epoch, value in points)
        left = _MARGIN + 120 * place
        parts += [
            f'<polyline points="{line}" {look}/>',
            f'<path d="M{left} {_HEIGHT - 14}h22" {look}/>',
            f'<text x="{left + 27}" y="{_HEIGHT - 10}">{name}</text>',
        ]
    return "".join(parts)
