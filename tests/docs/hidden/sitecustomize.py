"""Python reads this at its start, if its folder is on the path: modules named in $HIDDEN_MODULES seem not to be installed."""

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_HIDDEN = frozenset(os.environ.get("HIDDEN_MODULES", "").split(","))


class _Hiding(PathFinder):
    """The finder of modules on the path, which passes over those that are hidden."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] in _HIDDEN:
            return None
        return super().find_spec(fullname, path, target)


sys.meta_path[sys.meta_path.index(PathFinder)] = _Hiding
