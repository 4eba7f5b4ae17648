"""The graphs that `siafu generate` makes: the four of the Dorylus paper's Table 1 in shape, and a small one."""

import difflib
from dataclasses import dataclass, replace

from siafu.base.errors import BadInput
from siafu.graph.csr import MAX_INT32_VERTICES


@dataclass(frozen=True, slots=True)
class Shape:
    """What a synthetic graph looks like, and how hard it is.

    num_edges:   entries of the CSR: each undirected edge counts twice
    num_classes: planted communities; a vertex's label is its community, but for `label_noise`
    max_degree:  what the largest hub is expected to have; smaller graphs cap it at an eighth of the vertices
    exponent:    of the power law that degrees follow
    inside:      share of the edges that stay within a community
    signal:      length of a class's centroid, where the noise on each feature has deviation 1: with C classes,
                 features alone tell the class of a vertex where signal exceeds the largest of C - 1 normal draws
    label_noise: share of the vertices whose label is drawn from the other classes
    train, val:  shares of the vertices; the rest is for testing
    """

    name: str
    num_vertices: int
    num_edges: int
    num_features: int
    num_classes: int
    max_degree: int
    exponent: float
    inside: float
    signal: float
    label_noise: float
    train: float
    val: float

    def scaled(self, factor: float) -> "Shape":
        """The shape with `factor` times the vertices and edges: the same average degree."""
        if not 0 < factor < float("inf"):
            raise BadInput(f"--scale is {factor}: give a number above 0")
        if factor == 1:
            return self
        vertices, edges = round(self.num_vertices * factor), round(self.num_edges * factor)
        smallest = 2 * self.num_edges / self.num_vertices + 2 * self.num_classes
        if vertices < smallest:
            raise BadInput(
                f"--scale {factor} leaves {vertices} vertices for an average degree of {edges / max(vertices, 1):.0f}: "
                f"give at least {smallest / self.num_vertices:.2g}"
            )
        if vertices > MAX_INT32_VERTICES:
            raise BadInput(
                f"--scale {factor} asks for {vertices:,} vertices: siafu generates up to {MAX_INT32_VERTICES:,}"
            )
        return replace(self, name=f"{self.name}-x{factor:g}", num_vertices=vertices, num_edges=edges)


SHAPES = {
    shape.name: shape
    for shape in (
        Shape(
            "demo",
            num_vertices=4_000,
            num_edges=64_000,
            num_features=64,
            num_classes=8,
            max_degree=300,
            exponent=2.4,
            inside=0.65,
            signal=1.9,
            label_noise=0.03,
            train=0.3,
            val=0.2,
        ),
        Shape(
            "reddit-small",
            num_vertices=232_965,
            num_edges=114_615_892,
            num_features=602,
            num_classes=41,
            max_degree=20_000,
            exponent=2.3,
            inside=0.65,
            signal=2.8,
            label_noise=0.04,
            train=0.66,
            val=0.10,
        ),
        Shape(
            "reddit-large",
            num_vertices=1_100_000,
            num_edges=1_300_000_000,
            num_features=301,
            num_classes=50,
            max_degree=50_000,
            exponent=2.3,
            inside=0.6,
            signal=2.8,
            label_noise=0.06,
            train=0.66,
            val=0.10,
        ),
        Shape(
            "amazon",
            num_vertices=9_200_000,
            num_edges=313_900_000,
            num_features=300,
            num_classes=25,
            max_degree=10_000,
            exponent=2.4,
            inside=0.5,
            signal=2.3,
            label_noise=0.25,
            train=0.66,
            val=0.10,
        ),
        Shape(
            "friendster",
            num_vertices=65_600_000,
            num_edges=3_600_000_000,
            num_features=32,
            num_classes=50,
            max_degree=5_000,
            exponent=2.4,
            inside=0.5,
            signal=2.3,
            label_noise=0.10,
            train=0.66,
            val=0.10,
        ),
    )
}


def shape_named(name: str) -> Shape:
    """The shape of that name; an unknown one is refused with the nearest names."""
    if name in SHAPES:
        return SHAPES[name]
    near = difflib.get_close_matches(name, SHAPES, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"choose from {', '.join(SHAPES)}"
    raise BadInput(f"siafu cannot generate {name!r}: {hint}")
