"""Rows of an interval: what is added for some of them is what is added for all, with zeros for the others."""

import torch

from siafu.server.rows.interval_rows import IntervalRows


def test_rows_for_some_places_are_those_for_all_with_zeros_between() -> None:
    some, whole = IntervalRows(5), IntervalRows(5)
    for turn in range(2):  # the second is added to the first
        for where, which in ((slice(0, 3), torch.tensor([2])), (slice(3, 5), torch.tensor([0, 1]))):
            rows = torch.randn(len(which), 2)
            spread = torch.zeros(where.stop - where.start, 2).index_copy_(0, which, rows)
            some.add_some("gradient", where, which, rows)
            whole.add("gradient", where, spread)
        found = some.get("gradient", slice(0, 5))
        assert torch.equal(found, whole.get("gradient", slice(0, 5))), turn
        assert found[:2].count_nonzero() == 0
