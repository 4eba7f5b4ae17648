"""Groups of parameters with a learning rate and a weight decay of their own, and the rates of one update."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from siafu.base.errors import BadInput

GroupsAsked = str | Mapping[str, Mapping[str, float]]
"""{pattern: {"lr": …, "weight_decay": …}}, or the same as text: "PATTERN: lr=… weight_decay=…; PATTERN: …"."""

_SETTINGS = ("lr", "weight_decay")


@dataclass(frozen=True, slots=True)
class GroupRates:
    """Rates of one group of parameters in one update. Those of all groups travel as one tuple of numbers."""

    lr: float
    weight_decay: float
    beta1: float
    beta2: float

    @classmethod
    def of(cls, rates: Sequence[float], group: int) -> "GroupRates":
        """Rates of the group with this number."""
        return cls(*rates[4 * group : 4 * group + 4])

    def numbers(self) -> tuple[float, ...]:
        """As they travel."""
        return self.lr, self.weight_decay, self.beta1, self.beta2


@dataclass(frozen=True, slots=True)
class ParameterGroup:
    """Parameters that are updated with the same rates.

    names: of the parameters, in the model's order
    """

    names: tuple[str, ...]
    lr: float
    weight_decay: float


def read_groups(asked: GroupsAsked) -> dict[str, dict[str, float]]:
    """Settings of each group, by pattern; what is no such thing is refused."""
    found = _parsed(asked) if isinstance(asked, str) else asked
    if not isinstance(found, Mapping):
        raise BadInput(f"groups is {found!r}: give {{pattern: {{'lr': …, 'weight_decay': …}}}}")
    for pattern, settings in found.items():
        if not isinstance(settings, Mapping) or not settings or settings.keys() - set(_SETTINGS):
            raise BadInput(f"group {pattern!r} has {settings!r}: give it lr, weight_decay, or both")
        for name, value in settings.items():
            valid = isinstance(value, int | float) and 0 <= value < float("inf")
            if not valid or (name == "lr" and value == 0):
                raise BadInput(f"group {pattern!r} has {name} {value!r}: give a number above 0")
    return {
        pattern: {name: float(each) for name, each in settings.items()} for pattern, settings in found.items()
    }


def groups_text(asked: GroupsAsked) -> str:
    """The groups as text, in the one form that files keep."""
    return "; ".join(
        f"{pattern}: {' '.join(f'{name}={value!r}' for name, value in settings.items())}"
        for pattern, settings in read_groups(asked).items()
    )


def parameter_groups(
    parameters: Iterable[str], asked: GroupsAsked, lr: float, weight_decay: float
) -> tuple[ParameterGroup, ...]:
    """Groups in the order given, then one of the parameters that no pattern names.

    parameters: names of those that are learnt
    asked:      a pattern is a parameter's or a module's name, or has `*` for any text: "convs.0", "*.bias"
    """
    names = list(parameters)
    groups, owner = [], dict[str, str]()
    for pattern, settings in read_groups(asked).items():
        found = [name for name in names if _matches(name, pattern)]
        if not found:
            raise BadInput(f"group {pattern!r} is of no parameter: choose among {', '.join(names)}")
        for name in found:
            if name in owner:
                raise BadInput(f"groups {owner[name]!r} and {pattern!r} both have {name}: give it to one")
            owner[name] = pattern
        groups.append(
            ParameterGroup(tuple(found), settings.get("lr", lr), settings.get("weight_decay", weight_decay))
        )
    if rest := tuple(name for name in names if name not in owner):
        groups.append(ParameterGroup(rest, lr, weight_decay))
    return tuple(groups)


def _matches(name: str, pattern: str) -> bool:
    return name == pattern or name.startswith(f"{pattern}.") or fnmatchcase(name, pattern)


def _parsed(text: str) -> dict[str, Any]:
    groups: dict[str, Any] = {}
    for part in filter(str.strip, text.split(";")):
        pattern, colon, settings = part.partition(":")
        try:
            groups[pattern.strip()] = {
                name: float(value)
                for name, _, value in (each.partition("=") for each in settings.replace(",", " ").split())
            }
        except ValueError:
            colon = ""
        if not colon:
            raise BadInput(f"groups has {part.strip()!r}: give 'PATTERN: lr=0.01 weight_decay=0; PATTERN: …'")
    return groups
