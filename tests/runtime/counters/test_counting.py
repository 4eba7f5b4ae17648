"""Counters of two sessions, added up."""

from siafu.runtime.counters.counting import added


def test_numbers_add_up_and_peaks_are_the_higher() -> None:
    before = {"gradients_applied": 4, "max_staleness_seen": 3}
    assert added(before, {"gradients_applied": 5, "max_staleness_seen": 1}) == {
        "gradients_applied": 9,
        "max_staleness_seen": 3,
    }


def test_histograms_add_up_in_the_order_of_their_numbers() -> None:
    total = added({"row_age_histogram": {"-1": 1, "10": 2}}, {"row_age_histogram": {"2": 5, "10": 1}})
    assert list(total["row_age_histogram"].items()) == [("-1", 1), ("2", 5), ("10", 3)]


def test_what_lambdas_did_adds_up() -> None:
    kinds = {"T1": {"tasks": 2, "bytes_sent": 10}}
    before = {"invocations": 3, "usd": 0.5, "counts": [4, 2], "kinds": kinds, "prices": {"region": "here"}}
    now = before | {"kinds": kinds | {"∇T1": {"tasks": 1, "bytes_sent": 1}}, "counts": [1]}
    assert added({"lambda": before}, {"lambda": now})["lambda"] == {
        "invocations": 6,
        "usd": 1.0,
        "counts": [4, 2, 1],
        "kinds": {"T1": {"tasks": 4, "bytes_sent": 20}, "∇T1": {"tasks": 1, "bytes_sent": 1}},
        "prices": {"region": "here"},
    }


def test_what_only_one_session_had_stays() -> None:
    assert added({"lambda": {"invocations": 2}}, {"bytes_scattered": 1}) == {
        "lambda": {"invocations": 2},
        "bytes_scattered": 1,
    }
