"""Keywords that a function does not have, refused with the nearest one that it has."""

import inspect
from collections.abc import Mapping
from typing import Any

from siafu.base.errors import BadInput
from siafu.base.nearest import nearest

_OF_SAVED_RUNS = ("out", "resume", "overwrite")
_WITHOUT_RESUME = ("siafu.train_links", "siafu.train_ranks")


def refuse_unknown_keyword(given: Mapping[str, Any], declaration: Any, function: str) -> None:
    """Refuse a keyword that is none of the declaration's; function: its name for users."""
    known = list(inspect.signature(declaration).parameters)
    wrong = next((name for name in given if name not in known), None)
    if wrong is None:
        return
    if wrong == "resume" and function in _WITHOUT_RESUME:
        hint = f"{function} starts anew, and overwrite=True replaces what is in out"
    elif wrong in _OF_SAVED_RUNS:
        hint = f"{function} writes no files; torch.save(run.model.state_dict(), PATH) keeps the weights"
    else:
        near = nearest(wrong, known)
        hint = f"did you mean {near}?" if near else f"help({function}) lists them"
    raise BadInput(f"there is no keyword {wrong}: {hint}")
