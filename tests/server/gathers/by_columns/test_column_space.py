"""Which columns and heads each server has where gathers are laid out by columns."""

from hypothesis import given
from hypothesis import strategies as st

from siafu.server.gathers.by_columns.column_space import column_slices, widest_slice


@given(st.integers(1, 12), st.integers(0, 9), st.integers(1, 9))
def test_every_column_has_one_server_and_every_server_its_turn(width: int, heads: int, servers: int) -> None:
    found = column_slices(width * max(1, heads), heads, servers)
    assert len(found) == servers
    columns = [column for each in found for column in range(each.columns.start, each.columns.stop)]
    assert columns == list(range(width * max(1, heads)))
    assert widest_slice(width * max(1, heads), heads, servers).width == max(each.width for each in found)


@given(st.integers(1, 12), st.integers(1, 9), st.integers(1, 9))
def test_a_slice_has_the_heads_of_its_columns_and_those_are_equally_wide(
    width: int, heads: int, servers: int
) -> None:
    for each in column_slices(width * heads, heads, servers):
        touched = {column // width for column in range(each.columns.start, each.columns.stop)}
        assert touched == set(range(each.heads.start, each.heads.stop))
        # Of several heads all columns; of fewer heads than servers no more than one each.
        assert each.head_count <= 1 or each.width == each.head_count * width
        assert each.head_count <= -(-heads // servers)


def test_servers_share_heads_as_evenly_as_they_can() -> None:
    assert [each.head_count for each in column_slices(24, 8, 3)] == [3, 3, 2]
    assert [each.width for each in column_slices(7, 1, 3)] == [3, 2, 2]
    assert [each.width for each in column_slices(8, 2, 3)] == [2, 2, 4]
    assert [each.head_count for each in column_slices(2, 1, 3)] == [1, 1, 0]
