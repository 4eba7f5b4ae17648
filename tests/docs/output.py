"""Output that a page shows, compared with what its commands print.

Every shown line must be printed, in the order of the page; other lines may stand between them. `…` stands for anything. Numbers
that differ between machines are not compared: times, memory, threads, dates and the number of the best epoch. Shares in
percent may differ by 3 points, since other processors round in another way.
"""

import re

_POINTS = 3.0
_OF_THE_MACHINE = re.compile(
    r"\d[\d,.]* (?:s|ms|min)\b|\d[\d,.]*(?= (?:MB|GB|threads?)\b)|\d{8}-\d{6}|(?<=best epoch )\d+|(?<=in )\d[\d,.]* s\b"
)
_SHARE = re.compile(r"(\d[\d.]*)(?= %)")


def missing_lines(shown: str, printed: str) -> list[str]:
    """Lines that are shown and not printed, or not where the page has them."""
    left = printed.splitlines()
    missing = []
    for line in filter(str.strip, shown.splitlines()):
        place = next((place for place, other in enumerate(left) if _same(line, other)), None)
        if place is None:
            missing.append(line)
        else:
            left = left[place + 1 :]
    return missing


def _same(shown: str, printed: str) -> bool:
    ours, theirs = (_SHARE.split(_OF_THE_MACHINE.sub("N", line.rstrip())) for line in (shown, printed))
    texts = "%".join(ours[::2]), "%".join(theirs[::2])
    pattern = ".*".join(re.escape(part) for part in texts[0].split("…"))
    near = all(abs(float(a) - float(b)) <= _POINTS for a, b in zip(ours[1::2], theirs[1::2], strict=False))
    return re.fullmatch(pattern, texts[1]) is not None and near
