"""Work: what a task or a stage has to do, in amounts that a machine's rates turn into seconds."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Product:
    """Matrix products of a task: FLOPs, and the narrowest of their fixed widths."""

    flops: float
    width: int


@dataclass(frozen=True, slots=True)
class Work:
    """Work of a task, or of a whole stage.

    rows, edges:  that it goes over
    widths_in, widths_out: numbers in a row of all that it reads and makes
    products:     its matrix products
    moved:        bytes that its other operations read and write
    streamed:     bytes that it reads from tables in memory and writes to them
    draws:        numbers that dropout draws
    functions:    elementary functions of numbers
    calls:        operations of its program; they cost `call_seconds` for each block of rows that fits a core's cache
    widest:       bytes of its widest row: how many rows make a block
    row_bytes:    a gather: bytes of a row of the table; one number a slab of columns
    table_bytes:  a gather: of all rows that it may pick, on one server
    blocked:      a gather: whether Siafu may go block by block where edges are dense
    visit:        a gather: edges that a visit of a row finds in a block; 0: it goes row by row
    heads:        a gather: softmaxes an edge; back: whether it is their gradient
    received:     a tensor task: bytes of rows that a Lambda needs; `constant` of them never change
    sent:         a tensor task: bytes of rows that it makes
    weights, gradients: bytes of parameters read, and of their gradients made
    ghost_bytes:  bytes of a row that is scattered, to each server that holds it as a ghost
    sum_bytes:    bytes of sums over its rows, which every other server gets
    again:        what the backward task computes again unless it finds what the forward task made; None: nothing
    """

    rows: float
    edges: float = 0.0
    widths_in: tuple[int, ...] = ()
    widths_out: tuple[int, ...] = ()
    products: tuple[Product, ...] = ()
    moved: float = 0.0
    streamed: float = 0.0
    draws: float = 0.0
    functions: float = 0.0
    calls: float = 0.0
    widest: float = 0.0
    row_bytes: tuple[float, ...] = ()
    table_bytes: float = 0.0
    blocked: bool = False
    visit: float = 0.0
    heads: int = 0
    back: bool = False
    received: float = 0.0
    constant: float = 0.0
    sent: float = 0.0
    weights: float = 0.0
    gradients: float = 0.0
    ghost_bytes: float = 0.0
    sum_bytes: float = 0.0
    again: "Work | None" = None

    @property
    def gathers(self) -> bool:
        """Whether it picks rows along edges."""
        return bool(self.row_bytes)

    @property
    def flops(self) -> float:
        """Of its matrix products."""
        return sum(each.flops for each in self.products)

    def beside(self, other: "Work") -> "Work":
        """A gather of the same rows and edges together with another."""
        return replace(
            self,
            widths_in=(*self.widths_in, *other.widths_in),
            widths_out=(*self.widths_out, *other.widths_out),
            products=(*self.products, *other.products),
            moved=self.moved + other.moved,
            functions=self.functions + other.functions,
            streamed=self.streamed + other.streamed,
            row_bytes=(*self.row_bytes, *other.row_bytes),
            blocked=self.blocked and other.blocked,
            heads=self.heads + other.heads,
        )

    def share(self, rows: float, edges: float) -> "Work":
        """The part of a stage that goes over so many of its rows and edges."""
        part = rows / self.rows if self.rows else 0.0
        return replace(
            self,
            rows=rows,
            edges=edges,
            products=tuple(Product(each.flops * part, each.width) for each in self.products),
            moved=self.moved * part,
            streamed=self.streamed * part,
            draws=self.draws * part,
            functions=self.functions * part,
            received=self.received * part,
            constant=self.constant * part,
            sent=self.sent * part,
            again=None if self.again is None else self.again.share(rows, edges),
        )
