"""Interactions: which users have which items, to learn from and held out, and the graph of both."""

import difflib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.errors import BadInput
from siafu.graph.graph import Graph
from siafu.graph.links import draw_bits

Pairs = NDArray[np.int64]
"""[2, n]: the user of each pair, then the item, both counted from 0."""

_ORDER, _USERS, _ITEMS, _NEGATIVES, _SPLIT = (n << 40 for n in range(3, 8))  # streams of draws, one an epoch
_MOST_ROUNDS = 64


@dataclass(frozen=True, eq=False)
class Interactions:
    """Pairs of users and items: a bipartite graph whose held-out pairs are to be ranked.

    train, val, test: pairs without repetition, ascending; no pair is in two parts. val may be empty
    name:             what to call them in reports
    user_names, item_names: [num_users], [num_items] in ascending order; None: pairs were given as numbers

    Make one with `of` or `load`.
    """

    num_users: int
    num_items: int
    train: Pairs
    val: Pairs
    test: Pairs
    name: str = "interactions"
    user_names: NDArray[np.str_] | None = None
    item_names: NDArray[np.str_] | None = None

    def __repr__(self) -> str:
        parts = "/".join(f"{part.shape[1]:,}" for part in (self.train, self.val, self.test))
        return f"Interactions({self.name!r}, {self.num_users:,} users, {self.num_items:,} items, {parts} train/val/test pairs)"

    @classmethod
    def of(
        cls,
        train: Any,
        test: Any,
        val: Any = None,
        *,
        num_users: int | None = None,
        num_items: int | None = None,
        name: str = "interactions",
    ) -> "Interactions":
        """From pairs of a user and an item, by numbers or by names; a pair that is there twice counts once.

        train, val, test: [users, items], an array [2, n], or a DataFrame of these two columns
        """
        given = {
            "train": _columns(train, "train"),
            "val": _columns(val, "val"),
            "test": _columns(test, "test"),
        }
        if any(_has_names(each) for each in given.values()):
            _refuse_numbers_beside_names(given)
            return cls._of_names(given, num_users, num_items, name)
        parts = {part: _pairs(each, part) for part, each in given.items()}
        together = np.concatenate(list(parts.values()), axis=1)
        highest = together.max(axis=1, initial=-1) + 1
        users, items = (
            _count(asked, int(found), what)
            for asked, found, what in zip((num_users, num_items), highest, ("users", "items"), strict=True)
        )
        keys = {part: np.unique(pairs[0] * items + pairs[1]) for part, pairs in parts.items()}
        for part, others in (("val", ("train",)), ("test", ("train", "val"))):
            for other in others:
                both = np.intersect1d(keys[part], keys[other])
                if len(both):
                    raise BadInput(
                        f"user {both[0] // items} has item {both[0] % items} in {other} and in {part}: a pair is in one part only"
                    )
        if not len(keys["train"]) or not len(keys["test"]):
            raise BadInput("there are no pairs to train on, or none to test: give both")
        found = {part: np.stack(np.divmod(each, items)) for part, each in keys.items()}
        return cls(users, items, **found, name=name)

    @classmethod
    def split(
        cls, pairs: Any, *, test: float = 0.1, val: float = 0.0, seed: int = 0, name: str = "interactions"
    ) -> "Interactions":
        """From pairs as `of` takes them, of which these shares are drawn at random to be held out."""
        if not (0 < test < 1 and 0 <= val < 1 and test + val < 1):
            raise BadInput(
                f"test is {test}, val {val}: give shares that leave pairs to train on, and some to test"
            )
        given = _columns(pairs, "pairs")
        ends = _texts(given, "pairs") if _has_names(given) else _pairs(given, "pairs")
        numbers = [np.unique(end, return_inverse=True) for end in ends]
        keys = numbers[0][1] * max(1, len(numbers[1][0])) + numbers[1][1]
        once = ends[:, np.unique(keys, return_index=True)[1]]
        drawn = once[:, np.argsort(draw_bits(seed, _SPLIT, np.arange(once.shape[1])), kind="stable")]
        for_test = round(test * drawn.shape[1])
        cuts = [for_test, for_test + round(val * drawn.shape[1])]
        for_testing, for_validation, for_training = np.split(drawn, cuts, axis=1)
        return cls.of(for_training, for_testing, for_validation, name=name)

    @classmethod
    def _of_names(
        cls, given: dict[str, Any], num_users: int | None, num_items: int | None, name: str
    ) -> "Interactions":
        """Users and items numbered in the order of their names."""
        if num_users is not None or num_items is not None:
            raise BadInput(
                "num_users and num_items are for numbers, and names count themselves: leave them out"
            )
        texts = {part: _texts(each, part) for part, each in given.items() if each is not None}
        together = np.concatenate(list(texts.values()), axis=1)
        (users, user), (items, item) = (np.unique(each, return_inverse=True) for each in together)
        ends = np.cumsum([each.shape[1] for each in texts.values()])[:-1]
        numbered = dict(zip(texts, np.split(np.stack([user, item]), ends, axis=1), strict=True))
        made = cls.of(**numbered, num_users=len(users), num_items=len(items), name=name)
        return replace(made, user_names=users, item_names=items)

    def users_numbered(self, users: Any) -> NDArray[np.int64]:
        """Numbers of users, who may be given by their names."""
        given = np.asarray(users).reshape(-1)
        if given.size and given.dtype.kind in "US" and self.user_names is not None:
            texts = given.astype(np.str_)
            places = np.minimum(np.searchsorted(self.user_names, texts), self.num_users - 1)
            unknown = texts[self.user_names[places] != texts]
            if len(unknown):
                near = difflib.get_close_matches(str(unknown[0]), self.user_names.tolist(), n=1)
                hint = (
                    f"did you mean {near[0]}?"
                    if near
                    else f"there are {self.num_users:,}, from {self.user_names[0]} on"
                )
                raise BadInput(f"no user is called {str(unknown[0])!r}: {hint}")
            return places.astype(np.int64)
        if given.size and given.dtype.kind not in "iu":
            raise BadInput(f"users holds {given.dtype}: give their numbers, from 0 to {self.num_users - 1}")
        if given.size and not 0 <= given.min() <= given.max() < self.num_users:
            raise BadInput(f"users are counted from 0 to {self.num_users - 1}")
        return given.astype(np.int64)

    @classmethod
    def load(cls, path: str | Path) -> "Interactions":
        """From an `.npz` archive with train_user, train_item, test_user, test_item, and perhaps val_…, num_users, num_items."""
        if not str(path).endswith(".npz") and Path(path).is_file():
            raise BadInput(
                f"{path} is no .npz archive: read it yourself, and give its columns of users and items to "
                "Interactions.of(train=[users, items], test=[users, items])"
            )
        try:
            with np.load(path, allow_pickle=False) as found:
                arrays = {key: found[key] for key in found.files}
        except (OSError, ValueError) as error:
            raise BadInput(f"cannot read {path}: {' '.join(str(error).split())}") from error
        missing = [f"{part}_{end}" for part in ("train", "test") for end in ("user", "item")]
        if (wanted := next((key for key in missing if key not in arrays), None)) is not None:
            raise BadInput(f"{path} has no array {wanted!r}: it has {', '.join(sorted(arrays)) or 'none'}")
        parts = {
            part: (arrays[f"{part}_user"], arrays[f"{part}_item"])
            for part in ("train", "val", "test")
            if f"{part}_user" in arrays
        }
        counts = {key: int(arrays[key]) for key in ("num_users", "num_items") if key in arrays}
        return cls.of(**parts, **counts, name=Path(path).stem)  # type: ignore[arg-type]

    @cached_property
    def graph(self) -> Graph:
        """Users, then items; each training pair is an edge both ways."""
        users, items = self.train[0], self.train[1] + self.num_users
        graph = Graph.from_edges(
            np.concatenate([users, items]),
            np.concatenate([items, users]),
            num_vertices=self.num_users + self.num_items,
            name=self.name,
        )
        graph.__dict__["is_symmetric"] = True
        return graph

    def draws(self, epoch: int, seed: int, sampling: str) -> tuple[NDArray[np.int64], ...]:
        """An epoch's users, items that they have, and items that they have not, one triple for each training pair.

        sampling: "pairs": every training pair once, in another order every epoch; "users": each time a user at random,
                  and one of that user's items at random, as in LightGCN's own code
        """
        count = self.train.shape[1]
        numbers = np.arange(count)
        if sampling == "pairs":
            chosen = np.argsort(draw_bits(seed, _ORDER + epoch, numbers), kind="stable")
        else:
            starts = np.searchsorted(self.train[0], np.arange(self.num_users + 1))
            active = np.flatnonzero(np.diff(starts))
            user = active[
                (draw_bits(seed, _USERS + epoch, numbers) % np.uint64(len(active))).astype(np.int64)
            ]
            have = (starts[user + 1] - starts[user]).astype(np.uint64)
            chosen = starts[user] + (draw_bits(seed, _ITEMS + epoch, numbers) % have).astype(np.int64)
        users, items = self.train[:, chosen]
        return users, items, self._others(users, epoch, seed)

    def _others(self, users: NDArray[np.int64], epoch: int, seed: int) -> NDArray[np.int64]:
        """For each user an item that is none of theirs in training, drawn uniformly."""
        if np.bincount(self.train[0]).max() >= self.num_items:
            raise BadInput("a user has every item: there is none to tell theirs from; leave that user out")
        known = self.train[0] * self.num_items + self.train[1]
        found = np.zeros(len(users), np.int64)
        left = np.arange(len(users))
        for draw in range(_MOST_ROUNDS):
            bits = draw_bits(seed, _NEGATIVES + epoch, left * _MOST_ROUNDS + draw)
            items = (bits % np.uint64(self.num_items)).astype(np.int64)
            keys = users[left] * self.num_items + items
            place = np.minimum(np.searchsorted(known, keys), len(known) - 1)
            fine = known[place] != keys
            found[left[fine]] = items[fine]
            left = left[~fine]
            if len(left) == 0:
                return found
        raise BadInput("a user has nearly every item: too few are left to tell theirs from")


def _columns(given: Any, what: str) -> Any:
    """The two columns of a DataFrame, and names in arrays of text instead of Python's objects."""
    if hasattr(given, "columns") and hasattr(given, "iloc"):
        if given.shape[1] != 2:
            raise BadInput(f"{what} has {given.shape[1]} columns: give two, as in table[['user', 'item']]")
        given = [given.iloc[:, 0], given.iloc[:, 1]]
    if not isinstance(given, list | tuple | np.ndarray):
        return given
    has_objects = any(np.asarray(each).dtype == object for each in given)
    return [_without_objects(each, what) for each in given] if has_objects else given


def _without_objects(column: Any, what: str) -> NDArray[Any]:
    values = np.asarray(column)
    if values.dtype != object:
        return values
    # pandas' own NA is not equal to itself either, and does not say so.
    gaps = [not isinstance(each, str) and str(each) in ("None", "nan", "<NA>") for each in values]
    missing = np.flatnonzero(gaps)
    if len(missing):
        raise BadInput(f"{what} has nothing in row {missing[0]}: drop such pairs, in pandas table.dropna()")
    return np.array(values.tolist())


def _refuse_numbers_beside_names(given: dict[str, Any]) -> None:
    for what, pairs in given.items():
        if pairs is not None and np.asarray(pairs[0]).size and not _has_names(pairs):
            raise BadInput(f"{what} has numbers, and other parts have names: give names in all parts")


def _has_names(given: Any) -> bool:
    if isinstance(given, np.ndarray):
        return given.dtype.kind in "US"
    return isinstance(given, list | tuple) and any(np.asarray(each).dtype.kind in "US" for each in given)


def _texts(given: Any, what: str) -> NDArray[np.str_]:
    """Pairs of names; numbers beside names are names too."""
    users, items = (np.asarray(each) for each in given) if len(given) == 2 else (np.zeros((1, 1)),) * 2
    if users.ndim != 1 or users.shape != items.shape:
        raise BadInput(f"{what} is no pair of lists: give [users, items], as many of the one as of the other")
    return np.stack([users.astype(np.str_), items.astype(np.str_)])


def _pairs(given: Any, what: str) -> Pairs:
    if given is None:
        return np.zeros((2, 0), np.int64)
    found = np.asarray(given)
    if found.ndim != 2 or found.shape[0] != 2:
        raise BadInput(f"{what} has shape {found.shape}: give pairs [2, n] of whole numbers, users and items")
    if found.size and found.dtype.kind not in "iu":
        raise BadInput(f"{what} has values of type {found.dtype}: give whole numbers; or names in all parts")
    if found.size and found.min() < 0:
        raise BadInput(f"{what} has {found.min()}: users and items are counted from 0")
    return found.astype(np.int64)


def _count(asked: int | None, found: int, what: str) -> int:
    if asked is not None and asked < found:
        raise BadInput(
            f"num_{what} is {asked}, but {what} go up to {found - 1}: give {found}, or leave it out"
        )
    return found if asked is None else asked
