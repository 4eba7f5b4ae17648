"""VertexFault: what is wrong with one vertex of an import, told by the name that the input has for it."""

from typing import Any

from siafu.base.errors import BadInput


class VertexFault(BadInput):
    """Something is wrong with one vertex.

    vertex: its number in the store
    words:  the message, in which {vertex} stands for the vertex
    """

    def __init__(self, vertex: int, words: str) -> None:
        super().__init__(words.replace("{vertex}", str(vertex)))
        self.vertex = vertex
        self._words = words

    def named(self, name: Any) -> BadInput:
        """The same by the vertex's name in the input, a number or bytes."""
        told = repr(name.decode(errors="replace")) if isinstance(name, bytes) else str(name)
        return BadInput(self._words.replace("{vertex}", told))
