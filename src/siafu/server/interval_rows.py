"""IntervalRows: the rows and gradients of one interval that its tasks leave for each other."""

from collections.abc import Iterable, Mapping

from torch import Tensor


class IntervalRows:
    """Named tables of an interval's rows. Memory is allocated once and used again in every epoch."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._tables: dict[str, Tensor] = {}
        self._there: dict[str, Tensor] = {}
        self._begun: set[str] = set()

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

    def add_whole(self, name: str, rows: Tensor) -> None:
        """Add to a whole table, or lend it if there is none."""
        known = self._there.get(name)
        self._there[name] = rows if known is None else known + rows

    def lend(self, name: str, rows: Tensor) -> None:
        """Let `rows`, which belong to somebody else and are only read here, be the table of that name."""
        self._there[name] = rows

    def get(self, name: str, where: slice) -> Tensor:
        return self._there[name][where]

    def has(self, name: str) -> bool:
        return name in self._there

    def forget(self, names: Iterable[str]) -> None:
        """These are not there any more; their memory stays."""
        for name in names:
            self._there.pop(name, None)

    def _own_table(self, name: str, like: Tensor) -> Tensor:
        table = self._tables.get(name)
        if table is None:
            table = self._tables[name] = like.new_empty((self._count, *like.shape[1:]))
        if name not in self._there:
            self._there[name] = table
        return table


class WeightGradients:
    """Gradients of weights, added up block by block in tensors of their own."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self._own: set[str] = set()

    def add(self, gradients: Mapping[str, Tensor]) -> None:
        for name, gradient in gradients.items():
            if name not in self.sums:
                self.sums[name] = gradient
            elif name in self._own:
                self.sums[name].add_(gradient)
            else:
                self.sums[name] = self.sums[name] + gradient
                self._own.add(name)
