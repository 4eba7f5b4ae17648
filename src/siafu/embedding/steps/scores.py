"""Scores: how likely a triple is, by the vectors of its head, relation and tail."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from siafu.embedding.steps import queries
from siafu.embedding.steps.likeness import (
    DotProduct,
    EuclideanLikeness,
    Likeness,
    ManhattanLikeness,
    ModulusLikeness,
)

Query = Callable[..., None]


@dataclass(frozen=True, slots=True)
class TripleScore:
    """A score function f(h, r, t) = likeness(query(h, r), t) = likeness(inverse query(t, r), h).

    query, query_back: see `siafu.embedding.steps.queries`
    likeness:          compares a query with candidates
    is_complex:        rows are complex numbers: real parts, then imaginary parts
    has_relations:     whether relations have vectors
    relation_share:    width of a relation's vector, as a share of an entity's
    start:             half of the range in which an entity's numbers are drawn first, by the width
    angles:            relations' numbers are angles, drawn from all of them first; else they are drawn as entities' are. From
                       the neutral element, as PyTorch-BigGraph begins, every entity is its own best answer for long
    """

    name: str
    formula: str
    query: Query
    query_back: Query
    likeness: Likeness
    is_complex: bool = False
    has_relations: bool = True
    relation_share: float = 1.0
    start: Callable[[int], float] = lambda dim: 0.05
    angles: bool = False

    def relation_width(self, dim: int) -> int:
        return int(dim * self.relation_share)


def _of_transes_paper(dim: int) -> float:
    """The bound that the paper on TransE draws first vectors in."""
    return 6.0 / math.sqrt(dim)


def _of_rotates_paper(dim: int) -> float:
    """The bound of the paper on RotatE, (γ + 2) / pairs, for its γ of 9; at most 0.5, where there are few pairs.

    Distances are sums over pairs: by this bound, entities begin as far apart whatever their width.
    """
    return min(0.5, 11.0 / (dim / 2))


DOT = TripleScore("dot", "h · t", queries.same, queries.same_back, DotProduct(), has_relations=False)
DISTMULT = TripleScore("distmult", "Σ h r t", queries.product, queries.product_back, DotProduct())
COMPLEX = TripleScore(
    "complex",
    "Re Σ h r conj(t), in complex numbers",
    queries.complex_product,
    queries.complex_product_back,
    DotProduct(),
    is_complex=True,
)
TRANSE = TripleScore(
    "transe",
    "−‖h + r − t‖₂",
    queries.translation,
    queries.translation_back,
    EuclideanLikeness(),
    start=_of_transes_paper,
)
TRANSE_L1 = TripleScore(
    "transe-l1",
    "−‖h + r − t‖₁",
    queries.translation,
    queries.translation_back,
    ManhattanLikeness(),
    start=_of_transes_paper,
)
ROTATE = TripleScore(
    "rotate",
    "−Σ |h e^(iθ) − t|, in complex numbers; θ is the relation's",
    queries.rotation,
    queries.rotation_back,
    ModulusLikeness(),
    is_complex=True,
    relation_share=0.5,
    start=_of_rotates_paper,
    angles=True,
)

SCORES = {score.name: score for score in (DOT, DISTMULT, COMPLEX, TRANSE, TRANSE_L1, ROTATE)}
