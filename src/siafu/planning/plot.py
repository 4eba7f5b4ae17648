"""The offers of a plan as SVG: time against dollars, and the front of those that nothing beats in both."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

import numpy as np

from siafu.base.svg import label, picture
from siafu.cost.money import dollars
from siafu.planning.offer import Offer
from siafu.planning.planner import Plan
from siafu.report.progress import duration

_WIDTH, _HEIGHT = 720, 440
_LEFT, _RIGHT, _TOP, _BOTTOM = 78, 24, 46, 58
_COLOURS = {False: "#1b7fc4", True: "#e07b00"}  # without and with Lambdas
_LABEL_SIZE = 10
_BESIDE = 7
_NEAR: tuple[int, ...] = (-6, 18, _BESIDE)
_ANYWHERE: tuple[int, ...] = (*_NEAR, -22, 34, -38, 50)  # pixels of a label below its point
_POINT, _STEP = 4, 5  # pixels: half a point, and between looked-at places of a line
_ROOM = 1.15  # of the axes, beyond the outermost points


def plot(plan: Plan) -> str:
    """Both axes logarithmic: a straight line down to the right has the same value everywhere."""
    area = _Area(plan.offers)
    title = f"{plan.request.name}: {plan.request.model.name}, {plan.request.epochs} epochs"
    body = [
        label(_WIDTH / 2, 20, title, "middle", 'font-weight="bold"'),
        *area.axes(),
        *area.front(plan.front),
        *area.points(plan),
        *area.labels(plan),
        *_legend(),
    ]
    return picture(_WIDTH, _HEIGHT, body)


class _Area:
    """Where a time and a price are on the page."""

    def __init__(self, offers: Sequence[Offer]) -> None:
        self._seconds = _range([each.seconds for each in offers])
        self._usd = _range([each.usd for each in offers])

    def x(self, seconds: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * _share(seconds, self._seconds)

    def y(self, usd: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * _share(usd, self._usd)

    def axes(self) -> Iterator[str]:
        bottom = _HEIGHT - _BOTTOM
        yield f'<path d="M{_LEFT} {_TOP}V{bottom}H{_WIDTH - _RIGHT}" fill="none" stroke="#999"/>'
        for seconds in _ticks(self._seconds):
            x = self.x(seconds)
            yield f'<path d="M{x:.1f} {_TOP}V{bottom}" stroke="#eee"/>'
            yield label(x, bottom + 16, duration(seconds), "middle")
        for usd in _ticks(self._usd):
            y = self.y(usd)
            yield f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" stroke="#eee"/>'
            yield label(_LEFT - 6, y + 4, dollars(usd), "end")
        yield label((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 24, "time of the training", "middle")

    def front(self, offers: Sequence[Offer]) -> Iterator[str]:
        points = " ".join(f"{self.x(each.seconds):.1f},{self.y(each.usd):.1f}" for each in offers)
        yield f'<polyline points="{points}" fill="none" stroke="#2a9d4a" stroke-width="1.5"/>'

    def points(self, plan: Plan) -> Iterator[str]:
        for offer in plan.offers:
            colour = _COLOURS[bool(offer.setup.lambda_count)]
            size = 6 if offer.setup == plan.chosen.setup else 3.5
            tip = f"{offer.setup}: {duration(offer.seconds)}, {dollars(offer.usd)}"
            place = f'cx="{self.x(offer.seconds):.1f}" cy="{self.y(offer.usd):.1f}"'
            yield f'<circle {place} r="{size}" fill="{colour}"><title>{escape(tip)}</title></circle>'

    def labels(self, plan: Plan) -> Iterator[str]:
        """The chosen offer and the naive one, where they cover least; those of the front that cover nothing beside their points."""
        taken: list[_Box] = []
        drawn = self._drawn(plan)
        named = [(plan.chosen, f"chosen: {plan.chosen.setup}", _ANYWHERE)]
        if plan.naive is not None and plan.naive.setup != plan.chosen.setup:
            named.append((plan.naive, f"naive: {plan.naive.setup}", _ANYWHERE))
        named += [
            (each, str(each.setup), _NEAR) for each in plan.front if each not in (plan.chosen, plan.naive)
        ]
        for offer, text, below in named:
            boxes = _around(self.x(offer.seconds), self.y(offer.usd), text, below)
            free = [box for box in boxes if box.inside and not any(map(box.meets, taken))]
            covered = [sum(map(box.covers, drawn)) for box in free]
            if free and (below is _ANYWHERE or min(covered) == 0):
                best = free[covered.index(min(covered))]  # of as good ones the nearest
                taken.append(best)
                yield label(best.left, best.bottom - 3, text, "start", f'font-size="{_LABEL_SIZE}"')

    def _drawn(self, plan: Plan) -> list[tuple[float, float]]:
        """Places that a label had better not cover: all points, and the line of the front every few pixels."""
        front = [(self.x(each.seconds), self.y(each.usd)) for each in plan.front]
        line = [
            (x0 + (x1 - x0) * share, y0 + (y1 - y0) * share)
            for (x0, y0), (x1, y1) in pairwise(front)
            for share in np.linspace(0.0, 1.0, max(2, round(math.hypot(x1 - x0, y1 - y0) / _STEP))).tolist()
        ]
        return [*((self.x(each.seconds), self.y(each.usd)) for each in plan.offers), *line]


@dataclass(frozen=True, slots=True)
class _Box:
    """The place of a label."""

    left: float
    bottom: float
    width: float

    @property
    def inside(self) -> bool:
        return _LEFT < self.left < _WIDTH - self.width and _TOP < self.bottom < _HEIGHT - _BOTTOM

    def covers(self, place: tuple[float, float]) -> bool:
        """Whether a point there would be under the text, or touch it."""
        x, y = place
        beside = not self.left - _POINT < x < self.left + self.width + _POINT
        return not beside and self.bottom - 3 - _LABEL_SIZE - _POINT < y < self.bottom - 3 + _POINT

    def meets(self, other: "_Box") -> bool:
        beside = self.left + self.width < other.left or other.left + other.width < self.left
        return not beside and abs(self.bottom - other.bottom) < _LABEL_SIZE + 3


def _around(x: float, y: float, text: str, below: Sequence[int]) -> Iterator[_Box]:
    """Where the label of a point may be, the best place first.

    below: how far under the point
    """
    width = 0.55 * _LABEL_SIZE * len(text)
    for lower in below:
        for left in (x + 11, x - width - 11) if lower == _BESIDE else (x + 6, x - width - 6, x - width / 2):
            yield _Box(left, y + lower, width)


def _legend() -> Iterator[str]:
    y, x = _HEIGHT - 8, _LEFT
    for colour, name in (
        (_COLOURS[False], "without Lambdas"),
        (_COLOURS[True], "with Lambdas"),
        ("#2a9d4a", "the front"),
    ):
        yield f'<circle cx="{x}" cy="{y - 4}" r="4" fill="{colour}"/>'
        yield label(x + 9, y, name, "start")
        x += 140


def _range(values: Sequence[float]) -> tuple[float, float]:
    return min(values) / _ROOM, max(values) * _ROOM


def _share(value: float, span: tuple[float, float]) -> float:
    return math.log(value / span[0]) / math.log(span[1] / span[0])


def _ticks(span: tuple[float, float]) -> list[float]:
    """1, 2, 5, 10, 20, …: those within, and fewer of them where there are many."""
    first, last = math.floor(math.log10(span[0])), math.ceil(math.log10(span[1]))
    found = [step * 10.0**power for power in range(first, last + 1) for step in (1, 2, 5)]
    within = [each for each in found if span[0] <= each <= span[1]]
    return within if len(within) <= 9 else [each for each in within if math.log10(each) % 1 < 1e-9]
