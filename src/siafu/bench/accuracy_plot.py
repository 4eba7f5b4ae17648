"""Accuracy over time as SVG, one panel a dataset, written by hand: no plotting library is needed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from siafu.base.svg import label, picture
from siafu.bench.accuracy import WAYS, Accuracy

_COLOURS = dict(zip(WAYS, ("#222222", "#1b7fc4", "#e07b00"), strict=True))
_PANEL, _GAP, _COLUMNS = (300, 190), (56, 58), 3
_LEFT, _TOP, _LEGEND = 56, 34, 34
_SHOWN = 0.2  # part of the accuracy's scale that is shown below the best


def plot(results: Sequence[Accuracy]) -> str:
    """Validation accuracy over seconds of training, a line for each training, with the target as a dashed line."""
    columns = max(1, min(_COLUMNS, len(results)))
    rows = -(-len(results) // columns)
    width = _LEFT + columns * _PANEL[0] + (columns - 1) * _GAP[0] + 16
    height = _TOP + rows * (_PANEL[1] + _GAP[1]) + _LEGEND
    body: list[str] = []
    for number, result in enumerate(results):
        left = _LEFT + (number % columns) * (_PANEL[0] + _GAP[0])
        top = _TOP + (number // columns) * (_PANEL[1] + _GAP[1])
        body += _Panel(result, left, top, number).lines()
    body += _legend(height - _LEGEND // 2)
    return picture(width, height, body)


@dataclass(frozen=True)
class _Panel:
    result: Accuracy
    left: int
    top: int
    number: int

    def lines(self) -> Iterator[str]:
        wide, high = _PANEL
        box = f'x="{self.left}" y="{self.top}" width="{wide}" height="{high}"'
        yield f'<clipPath id="panel{self.number}"><rect {box}/></clipPath>'
        yield f'<rect {box} fill="none" stroke="#999"/>'
        yield label(self.left + wide / 2, self.top - 9, self.result.dataset, "middle", 'font-weight="bold"')
        yield from self._ticks()
        yield f'<g clip-path="url(#panel{self.number})" fill="none" stroke-width="1.2" stroke-opacity="0.8">'
        target = self._y(self.result.target)
        yield f'<path d="M{self.left} {target:.1f}h{wide}" stroke="#999" stroke-dasharray="5 4"/>'
        for way in WAYS:
            for trial in self.result.trials[way]:
                points = " ".join(
                    f"{self._x(seconds):.1f},{self._y(accuracy):.1f}"
                    for seconds, accuracy in zip(trial.seconds, trial.val, strict=True)
                )
                yield f'<polyline points="{points}" stroke="{_COLOURS[way]}"/>'
        yield "</g>"

    def _ticks(self) -> Iterator[str]:
        wide, high = _PANEL
        for k in range(5):
            seconds = k * self._latest / 4
            yield label(self._x(seconds), self.top + high + 15, f"{seconds:.3g}", "middle")
        yield label(self.left + wide / 2, self.top + high + 31, "seconds of training", "middle")
        first = int(100 * (self._highest - _SHOWN)) // 5 * 5 + 5
        for percent in range(first, int(100 * self._highest) + 1, 5):
            y = self._y(percent / 100)
            yield f'<path d="M{self.left} {y:.1f}h{wide}" stroke="#eee"/>'
            yield label(self.left - 6, y + 4, f"{percent} %", "end")

    @cached_property
    def _latest(self) -> float:
        return max(each.seconds[-1] for way in WAYS for each in self.result.trials[way])

    @cached_property
    def _highest(self) -> float:
        return max(max(each.val) for way in WAYS for each in self.result.trials[way]) + 0.01

    def _x(self, seconds: float) -> float:
        return self.left + _PANEL[0] * seconds / self._latest

    def _y(self, accuracy: float) -> float:
        return self.top + _PANEL[1] * (self._highest - accuracy) / _SHOWN


def _legend(y: int) -> Iterator[str]:
    x = _LEFT
    for way, colour in _COLOURS.items():
        yield f'<path d="M{x} {y}h24" stroke="{colour}" stroke-width="2"/>'
        yield label(x + 30, y + 4, way, "start")
        x += 50 + 8 * len(way)
