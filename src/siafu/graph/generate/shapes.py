"""The graphs that `siafu generate` makes: the four of the Dorylus paper's Table 1 in shape, ogbn-products, and a small one."""

from dataclasses import dataclass, replace
from typing import Any

from siafu.base.dataset_names import refuse_not_generated
from siafu.base.errors import BadInput
from siafu.graph.csr import MAX_INT32_VERTICES


@dataclass(frozen=True, slots=True)
class Shape:
    """Size, structure and difficulty of a synthetic graph.

    num_edges:   entries of the CSR: each undirected edge counts twice
    num_classes: a vertex's label is its community's class, but for `label_noise`
    max_degree:  what the largest hub is expected to have; smaller graphs cap it at an eighth of the vertices
    exponent:    of the power law that degrees follow
    inside:      share of the edges that stay within a community
    signal:      length of a class's centroid, where the noise on each feature has deviation 1: with C classes,
                 features alone tell the class of a vertex where signal exceeds the largest of C - 1 normal draws
    label_noise: share of the vertices whose label is drawn from the other classes
    train, val:  shares of the vertices; the rest is for testing
    communities: how many are planted, each of one class; 0: the classes themselves
    together:    whether the vertices of a community have neighbouring ids; otherwise ids are in no order
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
    communities: int = 0
    together: bool = False

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """Vertices, edges, features and classes."""
        return self.num_vertices, self.num_edges, self.num_features, self.num_classes

    @property
    def num_communities(self) -> int:
        """Communities that are planted."""
        return self.communities or self.num_classes

    def shuffled(self) -> "Shape":
        """The shape with ids in no order."""
        return replace(self, name=f"{self.name}-shuffled", together=False) if self.together else self

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
        communities = max(self.num_classes, round(self.communities * factor)) if self.communities else 0
        return replace(
            self,
            name=f"{self.name}-x{factor:g}",
            num_vertices=vertices,
            num_edges=edges,
            communities=communities,
        )


# Of each: vertices, edges, features, classes; largest degree, exponent, inside, signal, label noise; train, val;
# communities, and whether they lie together.
_SHAPES: dict[str, tuple[Any, ...]] = {
    "demo": (4_000, 64_000, 64, 8, 300, 2.4, 0.65, 1.9, 0.03, 0.3, 0.2),
    "reddit-small": (232_965, 114_615_892, 602, 41, 20_000, 2.3, 0.65, 2.8, 0.04, 0.66, 0.10),
    "reddit-large": (1_100_000, 1_300_000_000, 301, 50, 50_000, 2.3, 0.6, 2.8, 0.06, 0.66, 0.10),
    "products": (2_449_029, 123_718_152, 100, 47, 17_000, 2.4, 0.7, 2.0, 0.10, 0.08, 0.02, 5_000, True),
    "amazon": (9_200_000, 313_900_000, 300, 25, 10_000, 2.4, 0.5, 2.3, 0.25, 0.66, 0.10),
    "friendster": (65_600_000, 3_600_000_000, 32, 50, 5_000, 2.4, 0.5, 2.3, 0.10, 0.66, 0.10),
}
SHAPES = {name: Shape(name, *values) for name, values in _SHAPES.items()}


def shape_named(name: str) -> Shape:
    """The shape of that name; an unknown one is refused with the nearest names."""
    refuse_not_generated(name)
    return SHAPES[name]
