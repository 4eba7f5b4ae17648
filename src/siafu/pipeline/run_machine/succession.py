"""Succession: servers that take the place of lost ones, and who knows of them."""

from collections.abc import Iterable

from siafu.pipeline.ids import Address


class Succession:
    """How far the servers of a run are with beginning.

    A server that begins stands ready first. Then all others are told of it, send again what it needs, and note that. Only
    then does it go on: what it asks of others would be taken for its predecessor's.

    unready: servers that have not begun
    joined:  those that take a lost one's place, and do not go on yet
    """

    def __init__(self, servers: Iterable[Address] = ()) -> None:
        self.unready = set(servers)
        self.joined: set[Address] = set()
        self._unnoted: set[tuple[Address, Address]] = set()

    @property
    def is_over(self) -> bool:
        """Whether all servers go on."""
        return not self.unready and not self.joined

    def lose(self, server: Address) -> None:
        """Another takes the place of a server."""
        self.unready.add(server)
        self.joined.add(server)
        self._unnoted = {pair for pair in self._unnoted if server not in pair}

    def ready(self, server: Address) -> bool:
        """A server has begun: whether that is news."""
        if server not in self.unready:
            return False
        self.unready.remove(server)
        return True

    def tell(self, servers: Iterable[Address]) -> list[tuple[Address, Address]]:
        """All have begun: who must be told of which server that joined."""
        pairs = [
            (joined, other) for joined in sorted(self.joined, key=str) for other in servers if other != joined
        ]
        self._unnoted = set(pairs)
        return pairs

    def noted(self, joined: Address, by: Address) -> bool:
        """A server knows of one that joined: whether that is news."""
        if (joined, by) not in self._unnoted:
            return False
        self._unnoted.remove((joined, by))
        return True

    def go_on(self) -> list[Address]:
        """The servers that joined, if all others know of them: they go on from now on."""
        if self.unready or self._unnoted:
            return []
        joined, self.joined = sorted(self.joined, key=str), set()
        return joined

    def validate(self) -> None:
        """Raise AssertionError where the state contradicts itself."""
        strangers = {pair[0] for pair in self._unnoted} - self.joined
        assert not strangers, f"{strangers} go on, and not all know of them"
