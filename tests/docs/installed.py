"""Modules that an installation brings: what is installed here besides can be hidden from a process."""

import importlib.metadata as metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HIDING = Path(__file__).parent / "hidden"


def hidden_modules(*extras: str) -> str:
    """$HIDDEN_MODULES for a process with HIDING on its path: only what `siafu[extras]` requires is left."""
    kept = _closure("siafu", frozenset(extras), set())
    return ",".join(
        sorted(
            module
            for module, owners in metadata.packages_distributions().items()
            if not kept & {canonicalize_name(owner) for owner in owners}
        )
    )


def _closure(package: str, extras: frozenset[str], found: set[tuple[str, frozenset[str]]]) -> set[str]:
    """The package and all that it requires with these extras, and so on."""
    name = canonicalize_name(package)
    if (name, extras) in found:
        return set()
    found.add((name, extras))
    try:
        required = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return set()
    packages = {name}
    for line in required:
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras or {""}):
            packages |= _closure(requirement.name, frozenset(requirement.extras), found)
    return packages
