"""Numbers of vertices, batch after batch."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from siafu.sampling.vertex_numbers import VertexNumbers

V = 12
_batches = st.lists(
    st.tuples(
        st.lists(st.integers(0, V - 1), unique=True, max_size=4), st.lists(st.integers(0, V - 1), max_size=60)
    ),
    max_size=6,
)


@given(_batches, st.sampled_from([0, 2**31 - 1 - V, 2**31 - 2 - V]))
def test_vertices_have_numbers_in_the_order_in_which_each_batch_finds_them(
    batches: list[tuple[list[int], list[int]]], base: int
) -> None:
    numbers = VertexNumbers(V)
    numbers._above = base  # as after many batches: the slots begin anew where they would overflow
    for begun, asked in batches:
        assert numbers.begin(np.array(begun, np.int64)) == -1
        sources, found = np.array(asked, np.int32), np.empty(len(begun) + len(asked) + 1, np.int64)
        found[: len(begun)] = begun
        known = numbers.number(sources, found, len(begun))
        expected = list(dict.fromkeys(begun + asked))
        assert found[:known].tolist() == expected
        assert sources.tolist() == [expected.index(each) for each in asked]


def test_a_vertex_that_comes_twice_is_told_and_forgotten() -> None:
    numbers = VertexNumbers(V)
    assert numbers.begin(np.array([3, 1, 3, 5])) == 2
    assert numbers.begin(np.array([1, 3])) == -1
