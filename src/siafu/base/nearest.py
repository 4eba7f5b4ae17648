"""The name that a mistyped one was probably meant to be."""

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known name most like `word`; None: none is like it.

    Of names that are equally like it, one with the same letters comes first: letters change places more often than they change.
    """
    names = list(known)
    near = difflib.get_close_matches(word, names, n=max(1, len(names)))
    return max(near, key=lambda name: _likeness(word, name), default=None)


def choose(word: str, known: Iterable[str]) -> str:
    """The end of a refusal of `word`: the nearest known name, if one is near, and all that there are."""
    names = list(known)
    near = nearest(word, names)
    hint = f"did you mean {near}? There are" if near else "choose one of"
    return f"{hint} {', '.join(names)}"


def _likeness(word: str, name: str) -> tuple[float, float]:
    """Share of letters in the same order, then share of letters in any order."""
    matcher = difflib.SequenceMatcher(None, name, word)
    return matcher.ratio(), matcher.quick_ratio()
