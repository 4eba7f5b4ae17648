import threading

from siafu.embedding.steps.epoch import BatchWindow


def window(count: int, bound: int) -> BatchWindow:
    return BatchWindow(iter([(k, None, None) for k in range(count)]), bound)  # type: ignore[arg-type]


def test_batches_come_in_order_and_end() -> None:
    found = window(3, 1)
    for k in range(3):
        begun = found.begin()
        assert begun is not None and begun[:2] == (k, 0)
        found.end(k)
    assert found.begin() is None
    assert found.begin() is None


def test_a_batch_waits_until_all_but_the_bound_are_written() -> None:
    found = window(9, 2)
    assert [(found.begin() or (9,))[0] for _ in range(2)] == [0, 1]
    found.end(1)
    begun = threading.Event()
    number: list[int] = []

    def wait() -> None:
        number.append((found.begin() or (9,))[0])
        begun.set()

    thread = threading.Thread(target=wait)
    thread.start()
    assert not begun.is_set()  # batch 0 is two behind
    found.end(0)
    thread.join()
    assert number == [2]


def test_what_is_closed_hands_out_nothing() -> None:
    found = window(9, 4)
    found.begin()
    found.close()
    assert found.begin() is None
