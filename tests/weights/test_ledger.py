"""The ledger: each gradient is new once, in any order, and old epochs take no memory."""

from hypothesis import given
from hypothesis import strategies as st

from siafu.weights.ledger import Ledger

gradients = st.tuples(st.integers(0, 6), st.integers(0, 2), st.integers(0, 2))


@given(sent=st.lists(gradients, max_size=80), first_epoch=st.integers(0, 3))
def test_each_gradient_is_new_exactly_once_in_any_order(
    sent: list[tuple[int, int, int]], first_epoch: int
) -> None:
    ledger, seen = Ledger(first_epoch), set[tuple[int, int, int]]()
    for each in sent:
        new = each[0] >= first_epoch and each not in seen
        assert ledger.has(*each) == (not new)
        assert ledger.record(*each) == new
        seen.add(each)


def test_epochs_that_are_past_are_not_kept_one_by_one() -> None:
    ledger = Ledger()
    for epoch in range(1000):
        # Two epochs of an interval may overtake each other on the way.
        ledger.record(epoch ^ 1, 0, 0)
    assert sum(map(len, ledger._beyond.values())) == 0
    assert ledger.has(500, 0, 0)
