"""PyTorch has the threads again that it had before a run, whoever else is running."""

import threading

import pytest
import torch

from siafu.runtime.one_thread import one_thread


@pytest.fixture(autouse=True)
def three_threads():  # type: ignore[no-untyped-def]
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_within_there_is_one_and_afterwards_as_many_as_before() -> None:
    with pytest.raises(ValueError), one_thread():
        assert torch.get_num_threads() == 1
        raise ValueError
    assert torch.get_num_threads() == 3


def test_a_run_that_begins_during_another_does_not_leave_pytorch_with_one() -> None:
    inside, go_on, found = threading.Event(), threading.Event(), []

    def other() -> None:
        with one_thread():
            inside.set()
            assert go_on.wait(10)
        found.append(torch.get_num_threads())

    with one_thread():
        thread = threading.Thread(target=other)
        thread.start()
        assert inside.wait(10)
    assert torch.get_num_threads() == 3
    go_on.set()
    thread.join()
    later = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    later.start()
    later.join()
    assert found == [3, 3]
