"""Curves of accuracy as SVG, one panel a dataset, written by hand: no plotting library is needed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from siafu.base.svg import label, picture

Points = Sequence[tuple[float, float]]

_PANEL, _GAP, _COLUMNS = (300, 190), (56, 58), 3
_LEFT, _TOP, _LEGEND = 56, 34, 34


@dataclass(frozen=True, slots=True)
class CurvePanel:
    """Curves of one dataset over a common axis, with the target as a dashed line.

    curves: colour and points of each: place on the axis, accuracy from 0 to 1
    axis:   its name; first, last: where it begins and ends
    ticks:  places on it, and their labels
    """

    title: str
    target: float
    curves: Sequence[tuple[str, Points]]
    axis: str
    first: float
    last: float
    ticks: Sequence[tuple[float, str]]


@dataclass(frozen=True, slots=True)
class CurveStyle:
    """How curves are drawn.

    shown:  part of the accuracy's scale that is shown below the best: there, curves can be told apart
    stroke: attributes of the lines
    legend: colours, by name
    """

    shown: float
    stroke: str
    legend: Mapping[str, str]


def plot_panels(panels: Sequence[CurvePanel], style: CurveStyle) -> str:
    """All panels in one picture, three in a row, with a legend."""
    columns = max(1, min(_COLUMNS, len(panels)))
    rows = -(-len(panels) // columns)
    width = _LEFT + columns * _PANEL[0] + (columns - 1) * _GAP[0] + 16
    height = _TOP + rows * (_PANEL[1] + _GAP[1]) + _LEGEND
    body: list[str] = []
    for number, panel in enumerate(panels):
        left = _LEFT + (number % columns) * (_PANEL[0] + _GAP[0])
        top = _TOP + (number // columns) * (_PANEL[1] + _GAP[1])
        body += _Drawing(panel, style, left, top, number).lines()
    body += _legend(style.legend, height - _LEGEND // 2)
    return picture(width, height, body)


@dataclass(frozen=True, slots=True)
class _Drawing:
    panel: CurvePanel
    style: CurveStyle
    left: int
    top: int
    number: int

    def lines(self) -> Iterator[str]:
        wide, high = _PANEL
        box = f'x="{self.left}" y="{self.top}" width="{wide}" height="{high}"'
        yield f'<clipPath id="panel{self.number}"><rect {box}/></clipPath>'
        yield f'<rect {box} fill="none" stroke="#999"/>'
        yield label(self.left + wide / 2, self.top - 9, self.panel.title, "middle", 'font-weight="bold"')
        yield from self._ticks()
        yield f'<g clip-path="url(#panel{self.number})" fill="none" {self.style.stroke}>'
        target = self._y(self.panel.target)
        yield (
            f'<path d="M{self.left} {target:.1f}h{wide}" stroke="#999" stroke-width="1" stroke-dasharray="5 4"/>'
        )
        for colour, curve in self.panel.curves:
            points = " ".join(f"{self._x(place):.1f},{self._y(accuracy):.1f}" for place, accuracy in curve)
            yield f'<polyline points="{points}" stroke="{colour}"/>'
        yield "</g>"

    def _ticks(self) -> Iterator[str]:
        wide, high = _PANEL
        for place, text in self.panel.ticks:
            yield label(self._x(place), self.top + high + 15, text, "middle")
        yield label(self.left + wide / 2, self.top + high + 31, self.panel.axis, "middle")
        first = int(100 * (self._highest - self.style.shown)) // 5 * 5 + 5
        for percent in range(first, int(100 * self._highest) + 1, 5):
            y = self._y(percent / 100)
            yield f'<path d="M{self.left} {y:.1f}h{wide}" stroke="#eee"/>'
            yield label(self.left - 6, y + 4, f"{percent} %", "end")

    @property
    def _highest(self) -> float:
        return max(accuracy for _, curve in self.panel.curves for _, accuracy in curve) + 0.01

    def _x(self, place: float) -> float:
        whole = self.panel.last - self.panel.first
        return self.left + _PANEL[0] * (place - self.panel.first) / (whole or 1)

    def _y(self, accuracy: float) -> float:
        return self.top + _PANEL[1] * (self._highest - accuracy) / self.style.shown


def _legend(colours: Mapping[str, str], y: int) -> Iterator[str]:
    x = _LEFT
    for name, colour in colours.items():
        yield f'<path d="M{x} {y}h24" stroke="{colour}" stroke-width="2"/>'
        yield label(x + 30, y + 4, name, "start")
        x += 50 + 8 * len(name)
