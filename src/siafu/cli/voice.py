"""Voice: how much a command says on stderr."""

import sys
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from siafu.report.progress import Progress


@dataclass(frozen=True, slots=True)
class Voice:
    """What is said on stderr while a run lasts and when it is over. What is wrong is always said.

    quiet:   nothing
    verbose: also why the model is run as it is
    """

    quiet: bool
    verbose: bool

    def say(self, text: str) -> None:
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

    def progress(self, epochs: int, metric: str) -> "AbstractContextManager[Progress]":
        from siafu.report.progress import Progress, ProgressLine

        if self.quiet:
            return nullcontext(Progress())
        return ProgressLine(epochs, metric=metric, verbose=self.verbose)
