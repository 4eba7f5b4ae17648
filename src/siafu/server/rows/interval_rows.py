"""IntervalRows: the rows and gradients of one interval that its tasks leave for each other."""

from collections.abc import Iterable, Mapping

from torch import Tensor


def gradient_of(name: str) -> str:
    """The name of the gradients of rows of that name."""
    return f"gradient/{name}"


class IntervalRows:
    """Named tables of an interval's rows. Memory is allocated once and used again in every epoch.

    tables: the memory by name; another lane may use the same, which never runs at a time with this one
    places: names whose rows are in the memory of another name
    """

    def __init__(
        self, count: int, tables: dict[str, Tensor] | None = None, places: Mapping[str, str] | None = None
    ) -> None:
        self._count = count
        self._tables: dict[str, Tensor] = {} if tables is None else tables
        self._places = places or {}
        self._there: dict[str, Tensor] = {}
        self._begun: set[str] = set()
        self._passing: dict[str, tuple[int, Tensor]] = {}

    def put(self, name: str, where: slice, rows: Tensor) -> None:
        """Write some rows of a table."""
        self._own_table(name, rows)[where] = rows

    def add(self, name: str, where: slice, rows: Tensor) -> None:
        """Add to some rows of a table; the first to come for a row takes the place of what was there before.

        Blocks come in order, so a table that is not there yet has no row yet.
        """
        known = self._there.get(name)
        if known is None or name in self._begun:
            self._begun.add(name)
            self.put(name, where, rows)
            if where.stop == self._count:
                self._begun.remove(name)
        else:
            table = self._own_table(name, rows)
            if known is not table:
                table.copy_(known)
                self._there[name] = table
            table[where] += rows

    def add_some(self, name: str, where: slice, which: Tensor | None, rows: Tensor) -> None:
        """`add` for rows at the places `which` of `where`; others get zeros. None: all."""
        if which is None:
            self.add(name, where, rows)
        elif name in self._there and name not in self._begun:
            self.add(name, where, spread(rows, which, where.stop - where.start))
        else:
            self._begun.add(name)
            self._own_table(name, rows)[where].zero_().index_copy_(0, which, rows)
            if where.stop == self._count:
                self._begun.remove(name)

    def add_whole(self, name: str, rows: Tensor) -> None:
        """Add to a whole table, or lend it if there is none."""
        known = self._there.get(name)
        self._there[name] = rows if known is None else known + rows

    def lend(self, name: str, rows: Tensor) -> None:
        """Let `rows`, which belong to somebody else and are only read here, be the table of that name."""
        self._there[name] = rows

    def pass_by(self, name: str, first: int, rows: Tensor) -> None:
        """Let `rows` be those of the table of that name from `first` on, until the next or `end_passing`."""
        self._passing[name] = first, rows

    def pass_sum(self, name: str, where: slice, rows: Tensor) -> None:
        """The same for the sum of `rows` and what is there, which stays as it is."""
        known = self._there.get(name)
        passing = self._passing.get(name)
        if passing is not None:  # another gather has sent back the same rows
            rows = passing[1] + rows
        elif known is not None:
            rows = known[where] + rows
        self.pass_by(name, where.start, rows)

    def end_passing(self) -> None:
        """Forget the rows that only passed by."""
        self._passing.clear()

    def get(self, name: str, where: slice) -> Tensor:
        if name in self._passing:
            first, rows = self._passing[name]
            return rows[where.start - first : where.stop - first]
        return self._there[name][where]

    def has(self, name: str) -> bool:
        return name in self._there or name in self._passing

    def forget(self, names: Iterable[str]) -> None:
        """These are not there any more; their memory stays."""
        for name in names:
            self._there.pop(name, None)

    def _own_table(self, name: str, like: Tensor) -> Tensor:
        place = self._places.get(name, name)
        table = self._tables.get(place)
        if table is None or table.shape[1:] != like.shape[1:] or table.dtype != like.dtype:
            table = self._tables[place] = like.new_empty((self._count, *like.shape[1:]))
        if name not in self._there:
            self._there[name] = table
        return table


def spread(rows: Tensor, which: Tensor, count: int) -> Tensor:
    """`rows` at the places `which` of `count`, zero elsewhere."""
    return rows.new_zeros((count, *rows.shape[1:])).index_copy_(0, which, rows)
