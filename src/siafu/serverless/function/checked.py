"""Checked: a reader of JSON objects from elsewhere, which refuses unexpected fields and types in one line."""

from typing import Any, TypeVar

from siafu.base.errors import BadInput

T = TypeVar("T")


class Checked:
    """The fields of a JSON object, each taken once and checked; `end` refuses what was not taken.

    what: how messages name it
    """

    def __init__(self, form: Any, what: str) -> None:
        if not isinstance(form, dict):
            raise BadInput(f"{what} is no JSON object")
        self._form, self._what = dict(form), what

    def number(self, name: str) -> int:
        value = self._take(name)
        if type(value) is not int or not 0 <= value < 2**63:
            raise BadInput(f"{self._what}: {name!r} is no whole number from 0 up")
        return value

    def truth(self, name: str) -> bool:
        return self._typed(name, bool)

    def text(self, name: str, most: int = 500) -> str:
        value = self._typed(name, str)
        if len(value) > most or not value.isprintable():
            raise BadInput(f"{self._what}: {name!r} is no line of at most {most} characters")
        return value

    def list(self, name: str) -> list[Any]:
        return self._typed(name, list)

    def object(self, name: str) -> "Checked":
        return Checked(self._take(name), f"{self._what}: {name!r}")

    def end(self) -> None:
        if self._form:
            raise BadInput(f"{self._what}: {next(iter(self._form))!r} is not one of its fields")

    def _typed(self, name: str, kind: type[T]) -> T:
        value = self._take(name)
        if not isinstance(value, kind):
            raise BadInput(f"{self._what}: {name!r} is no {kind.__name__}")
        return value

    def _take(self, name: str) -> Any:
        if name not in self._form:
            raise BadInput(f"{self._what}: {name!r} is missing")
        return self._form.pop(name)
