"""How many tasks a Lambda has at once: as many as fill its connection."""

import pytest

from siafu.serverless.control.places import LINK_BYTES, ONE_PLACE, Places


@pytest.mark.parametrize(
    ("task_bytes", "places"),
    [(2 * LINK_BYTES, 3), (LINK_BYTES // 2, 3), (LINK_BYTES // 4, 5), (LINK_BYTES // 100, 8), (0, 8)],
)
def test_small_tasks_have_more_places(task_bytes: int, places: int) -> None:
    assert Places(3).of(task_bytes) == places


def test_a_lambda_that_shall_have_one_task_has_one() -> None:
    assert ONE_PLACE.of(0) == 1


def test_more_places_than_usual_are_had_where_they_are_asked_for() -> None:
    assert Places(9, 9).of(2 * LINK_BYTES) == 9
