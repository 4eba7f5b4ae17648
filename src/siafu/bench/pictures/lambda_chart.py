"""Results of `siafu bench lambda` as SVG: one panel of bars a part."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from siafu.base.svg import label, picture
from siafu.bench.lambdas import Part

_TITLES = {
    "modes": "mode",
    "tricks": "pipe, with one thing off",
    "tuning": "number of Lambdas",
    "overhead": "no network between",
}
_PANEL = (250, 190)
_GAP, _LEFT, _TOP, _BELOW = 62, 50, 34, 118
_FIRST, _OTHER, _CHOSEN = "#222222", "#1b7fc4", "#e07b00"


class Bar(NamedTuple):
    """name: below it; seconds: how high it is"""

    name: str
    seconds: float
    colour: str


def bars(part: Part) -> list[Bar]:
    """Seconds an epoch; what the autotuner chose stands out."""
    return [
        Bar(f"{each.who}: {each.settled}", each.settled_seconds, _CHOSEN)
        if each.counts
        else Bar(each.who, each.best, _OTHER if place else _FIRST)
        for place, each in enumerate(part.measured)
    ]


def chart(parts: Sequence[Part]) -> str:
    """Seconds an epoch, a panel a part."""
    width = _LEFT + len(parts) * _PANEL[0] + (len(parts) - 1) * _GAP + 16
    height = _TOP + _PANEL[1] + _BELOW
    body = [
        line
        for number, part in enumerate(parts)
        for line in _panel(part, _LEFT + number * (_PANEL[0] + _GAP))
    ]
    return picture(width, height, body)


def _panel(part: Part, left: int) -> Iterator[str]:
    wide, high = _PANEL
    shown = bars(part)
    scale = 1.1 * max(bar.seconds for bar in shown)
    yield label(left + wide / 2, _TOP - 12, _TITLES[part.name], "middle", 'font-weight="bold"')
    for k in range(1, 5):
        y = _TOP + high * (1 - k / 4)
        yield f'<path d="M{left} {y:.1f}h{wide}" stroke="#eee"/>'
        yield label(left - 5, y + 4, f"{scale * k / 4:.2g} s", "end")
    step = wide / len(shown)
    for place, bar in enumerate(shown):
        tall, middle = high * bar.seconds / scale, left + (place + 0.5) * step
        yield (
            f'<rect x="{middle - 0.35 * step:.1f}" y="{_TOP + high - tall:.1f}" width="{0.7 * step:.1f}" '
            f'height="{tall:.1f}" fill="{bar.colour}"/>'
        )
        yield label(middle, _TOP + high - tall - 4, f"{bar.seconds:.2f}", "middle", 'font-size="10"')
        x, y = middle + 4, _TOP + high + 12
        yield label(x, y, bar.name, "end", f'transform="rotate(-40 {x:.1f} {y})"')
    yield f'<path d="M{left} {_TOP + high}h{wide}" stroke="#999"/>'
