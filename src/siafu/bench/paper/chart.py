"""Every predicted ratio over its published one, as SVG, written by hand: no plotting library is needed."""

import math
from collections.abc import Iterator, Sequence
from html import escape

from siafu.base.svg import label, picture
from siafu.bench.paper.cells import CLOSE, PaperRatio

_COLOURS = {
    "Table 4": "#1b7fc4",
    "Figure 6": "#2a9d4a",
    "Figure 8": "#e07b00",
    "Table 2": "#b03a8c",
    "Table 5": "#222222",
}
_SIZE, _LEFT, _TOP, _BOTTOM = 520, 64, 20, 90
_TICKS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


def chart(cells: Sequence[PaperRatio]) -> str:
    """Points on a logarithmic square: on the diagonal a prediction is right, within the band it is close."""
    width, height = _LEFT + _SIZE + 20, _TOP + _SIZE + _BOTTOM
    body = [
        *_frame(),
        *(_point(cell) for cell in cells),
        *_legend(),
    ]
    return picture(width, height, body)


def _frame() -> Iterator[str]:
    low, high = _TICKS[0], _TICKS[-1]
    band = [(low, low * (1 - CLOSE)), (high, high * (1 - CLOSE)), (high, high * (1 + CLOSE))]
    band.append((low, low * (1 + CLOSE)))
    corners = " ".join(f"{_x(x):.1f},{_y(y):.1f}" for x, y in band)
    yield f'<clipPath id="square"><rect x="{_LEFT}" y="{_TOP}" width="{_SIZE}" height="{_SIZE}"/></clipPath>'
    yield f'<g clip-path="url(#square)"><polygon points="{corners}" fill="#eef4ea"/>'
    yield f'<path d="M{_x(low)} {_y(low)}L{_x(high)} {_y(high)}" stroke="#999"/></g>'
    yield f'<rect x="{_LEFT}" y="{_TOP}" width="{_SIZE}" height="{_SIZE}" fill="none" stroke="#999"/>'
    for tick in _TICKS:
        yield label(_x(tick), _TOP + _SIZE + 16, f"{tick:g}", "middle")
        yield label(_LEFT - 6, _y(tick) + 4, f"{tick:g}", "end")
    yield label(_LEFT + _SIZE / 2, _TOP + _SIZE + 36, "published ratio", "middle")
    middle = _TOP + _SIZE / 2
    yield (
        f'<text x="18" y="{middle}" text-anchor="middle" fill="#333" transform="rotate(-90 18 {middle})">predicted ratio</text>'
    )


def _point(cell: PaperRatio) -> str:
    title = f"{cell.where}, {cell.row}, {cell.what}: {cell.published:.2f} published, {cell.predicted:.2f} predicted"
    colour = _COLOURS[cell.where]
    fill = colour if cell.close else "white"
    return (
        f'<circle cx="{_x(cell.published):.1f}" cy="{_y(cell.predicted):.1f}" r="4" fill="{fill}" stroke="{colour}">'
        f"<title>{escape(title)}</title></circle>"
    )


def _legend() -> Iterator[str]:
    x, y = _LEFT, _TOP + _SIZE + 62
    for where, colour in _COLOURS.items():
        yield f'<circle cx="{x}" cy="{y}" r="4" fill="{colour}"/>'
        yield label(x + 8, y + 4, where, "start")
        x += 82
    yield label(_LEFT, y + 22, f"the band: within {CLOSE:.0%}; hollow: outside of it", "start")


def _x(ratio: float) -> float:
    return _LEFT + _SIZE * _along(ratio)


def _y(ratio: float) -> float:
    return _TOP + _SIZE * (1 - _along(ratio))


def _along(ratio: float) -> float:
    low, high = math.log(_TICKS[0]), math.log(_TICKS[-1])
    return (math.log(ratio) - low) / (high - low)
