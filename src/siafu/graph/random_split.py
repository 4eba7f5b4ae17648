"""RandomSplit: a split that is drawn: `random:60/20/20`, or `stratified:60/20/20` with the same shares in every class."""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.errors import BadInput
from siafu.graph.quantities import unknown_rows

KINDS = ("random", "stratified")
FORM = re.compile(rf"({'|'.join(KINDS)}):([^/]*)/([^/]*)/([^/]*)")

_STREAM = 0x73706C6974
"""Mixed into the seed: a user who draws labels or features with `default_rng(seed)` has the numbers of another stream."""


@dataclass(frozen=True, slots=True)
class RandomSplit:
    """Shares of the labelled vertices for train, val and test, each from 0 to 1, together at most 1."""

    shares: tuple[float, float, float]
    stratified: bool = False

    @classmethod
    def parsed(cls, text: str) -> "RandomSplit | None":
        """The split that "random:60/20/20" or the like asks for, in percent; None: it is nothing of that kind."""
        found = FORM.fullmatch(text)
        if found is None:
            kind = text.partition(":")[0]
            if kind in KINDS:
                raise BadInput(f"split {text!r}: give three shares in percent, as in {kind}:60/20/20")
            return None
        try:
            train, val, test = (float(part) / 100 for part in found.groups()[1:])
        except ValueError:
            raise BadInput(f"split {text!r}: give three numbers, as in {found[1]}:60/20/20") from None
        return cls((train, val, test), found[1] == "stratified").checked()

    @classmethod
    def asked(cls, text: str) -> "RandomSplit":
        """The split that a text asks for, and nothing else will do."""
        found = cls.parsed(text)
        if found is None:
            raise BadInput(
                f"split {text!r} is none that can be drawn: give random:60/20/20 or stratified:60/20/20"
            )
        return found

    def checked(self) -> "RandomSplit":
        """Refuse shares that cannot be."""
        fits = all(0 <= share <= 1 for share in self.shares) and sum(self.shares) <= 1 + 1e-9
        if not fits or self.shares[0] == 0:
            shown = "/".join(f"{share * 100:g}" for share in self.shares)
            raise BadInput(
                f"a split of {shown} % cannot be: train must have some, none may be negative, together at most 100"
            )
        return self

    def draw(self, labels: NDArray[Any], seed: int) -> NDArray[np.uint8]:
        """For each vertex 1 (train), 2 (val), 3 (test) or 0 (none); a vertex without a label (-1) has none.

        labels: as `Graph.y` has them; where a vertex has any number of labels, each counts as labelled
        """
        if labels.ndim == 2 or labels.dtype.kind == "f":
            if self.stratified:
                raise BadInput("a stratified split needs one class a vertex: draw a random one")
            labels = np.where(unknown_rows(labels), -1, 0)
        codes = np.zeros(len(labels), np.uint8)
        draw = np.random.default_rng([seed, _STREAM])
        labelled = np.flatnonzero(labels >= 0)
        if self.stratified:
            by_class = labelled[np.argsort(labels[labelled], kind="stable")]
            groups = np.split(by_class, np.flatnonzero(np.diff(labels[by_class])) + 1)
        else:
            groups = [labelled]
        for group in groups:
            shuffled = draw.permutation(group)
            bounds = np.round(np.cumsum(self.shares) * len(group)).astype(np.int64)
            for code, part in enumerate(np.split(shuffled, bounds)[:3], start=1):
                codes[part] = code
        if not (codes == 1).any():
            raise BadInput(
                f"of {len(labelled):,} labelled vertices none is drawn for train: give it a larger share"
            )
        return codes
