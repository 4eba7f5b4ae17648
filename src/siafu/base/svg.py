"""SVG: pictures of measurements and plans, written by hand."""

from collections.abc import Iterable
from html import escape


def picture(width: float, height: float, body: Iterable[str]) -> str:
    """Text of an SVG file."""
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
    lines = [head, f'<rect width="{width}" height="{height}" fill="white"/>', *body, "</svg>"]
    return "\n".join(lines) + "\n"


def label(x: float, y: float, words: str, anchor: str, more: str = "") -> str:
    """Text at a place; `more` are further attributes."""
    also = f" {more}" if more else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#333"{also}>{escape(words)}</text>'
