"""A memory list: sums, the peak and when it is."""

from siafu.server.memory.memory_list import Allocation, Lifetime, MemoryList


def listed(*given: tuple[int, Lifetime]) -> MemoryList:
    return MemoryList.of(Allocation(f"{k}", size, life, "test") for k, (size, life) in enumerate(given))


def test_the_peak_is_the_most_at_once() -> None:
    found = listed((10, Lifetime.RUN), (5, Lifetime.FOLDING), (3, Lifetime.MAKING), (6, Lifetime.EPOCHS))
    assert (found.peak, found.peak_when, found.total) == (18, "constants are computed", 24)
    more = listed((10, Lifetime.RUN), (5, Lifetime.FOLDING), (6, Lifetime.EPOCHS), (1, Lifetime.TASK))
    assert (more.peak, more.peak_when) == (17, "epochs run")


def test_arrays_come_largest_first_and_equal_ones_together() -> None:
    one, two = Allocation("a", 2, Lifetime.RUN, "p"), Allocation("b", 3, Lifetime.RUN, "p")
    found = MemoryList.of([one, two, one, Allocation("none", 0, Lifetime.RUN, "p")])
    assert [(each.name, each.bytes) for each in found.allocations] == [("a", 4), ("b", 3)]


def test_a_mapped_file_is_in_the_list_and_in_no_sum() -> None:
    found = MemoryList.of([Allocation("x", 9, Lifetime.RUN, "p", mapped=True)])
    assert (found.total, found.peak, found.mapped) == (0, 0, 9)
    assert found.as_json()["arrays"][0]["mapped"] is True
