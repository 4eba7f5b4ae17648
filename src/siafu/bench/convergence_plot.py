"""Learning curves as SVG, one panel a dataset, written by hand: no plotting library is needed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from siafu.base.svg import label, picture
from siafu.bench.convergence import VARIANTS, Convergence

_COLOURS = ("#222222", "#1b7fc4", "#e07b00", "#2a9d4a", "#b03a8c")
_PANEL, _GAP, _COLUMNS = (300, 190), (56, 58), 3
_LEFT, _TOP, _LEGEND = 56, 34, 34
_SHOWN = 0.15
"""Part of the accuracy's scale that is shown below the best: there, curves can be told apart."""


def plot(results: Sequence[Convergence]) -> str:
    """The mean validation accuracy of every variant, epoch by epoch, with the target as a dashed line."""
    columns = min(_COLUMNS, len(results))
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


@dataclass(frozen=True, slots=True)
class _Panel:
    result: Convergence
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
        yield f'<g clip-path="url(#panel{self.number})" fill="none" stroke-width="1.5">'
        target = self._y(self.result.target)
        yield (
            f'<path d="M{self.left} {target:.1f}h{wide}" stroke="#999" stroke-width="1" stroke-dasharray="5 4"/>'
        )
        for variant in self.result.trials:
            points = " ".join(
                f"{self._x(epoch):.1f},{self._y(accuracy):.1f}"
                for epoch, accuracy in enumerate(self.result.curve(variant), 1)
            )
            yield f'<polyline points="{points}" stroke="{_colour(variant)}"/>'
        yield "</g>"

    def _ticks(self) -> Iterator[str]:
        wide, high = _PANEL
        for k in range(5):
            epoch = max(1, round(k * self.result.setting.epochs / 4))
            yield label(self._x(epoch), self.top + high + 15, str(epoch), "middle")
        yield label(self.left + wide / 2, self.top + high + 31, "epoch", "middle")
        first = int(100 * (self._highest - _SHOWN)) // 5 * 5 + 5
        for percent in range(first, int(100 * self._highest) + 1, 5):
            y = self._y(percent / 100)
            yield f'<path d="M{self.left} {y:.1f}h{wide}" stroke="#eee"/>'
            yield label(self.left - 6, y + 4, f"{percent} %", "end")

    @property
    def _highest(self) -> float:
        return max(max(self.result.curve(variant)) for variant in self.result.trials) + 0.01

    def _x(self, epoch: float) -> float:
        return self.left + _PANEL[0] * (epoch - 1) / max(1, self.result.setting.epochs - 1)

    def _y(self, accuracy: float) -> float:
        return self.top + _PANEL[1] * (self._highest - accuracy) / _SHOWN


def _legend(y: int) -> Iterator[str]:
    x = _LEFT
    for variant in VARIANTS:
        yield f'<path d="M{x} {y}h24" stroke="{_colour(variant)}" stroke-width="2"/>'
        yield label(x + 30, y + 4, variant, "start")
        x += 50 + 8 * len(variant)


def _colour(variant: str) -> str:
    return _COLOURS[list(VARIANTS).index(variant) % len(_COLOURS)]
