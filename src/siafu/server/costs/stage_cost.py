"""StageCost: one stage over a whole graph, in figures for people."""

from dataclasses import dataclass, field

from siafu.server.costs.work import Product, Work


@dataclass(frozen=True, slots=True)
class StageCost:
    """One stage over the whole graph, in one epoch.

    name:       T0, G1, T1(loss), ∇G1, …
    over:       what it goes over: "rows" or "edges"; count: how many of them
    widths_in, widths_out: numbers in a row, of all that is read and made
    parameters: numbers that it reads and that are trained
    flops:      floating-point operations; those of elementary functions are estimates; a gather's adds and products
    bytes:      rows read and written; of a gather, a row an edge
    kept:       bytes that stay until the backward pass, so that it computes no product again
    operations: the tensor program's, or the gather
    program:    the tensor program's name, which is its hash; None: a gather runs as a kernel
    """

    name: str
    over: str
    count: int
    widths_in: tuple[int, ...] = ()
    widths_out: tuple[int, ...] = ()
    parameters: int = 0
    flops: int = 0
    bytes: int = 0
    kept: int = 0
    operations: tuple[str, ...] = ()
    program: str | None = None
    text: str = field(repr=False, default="")

    def work(self) -> Work:
        """About what virtual time makes of these figures, for a kind of stage that has no finer ones."""
        widths = [width for width in (*self.widths_in, *self.widths_out) if width]
        return Work(
            rows=float(self.count),
            widths_in=self.widths_in,
            widths_out=self.widths_out,
            products=(Product(float(self.flops), min(widths, default=1)),) if self.flops else (),
            streamed=float(self.bytes),
        )
