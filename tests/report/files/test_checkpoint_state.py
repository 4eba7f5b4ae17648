"""The state in a checkpoint: read as it was written, and in no other form."""

from pathlib import Path
from typing import Any

import pytest

from siafu.base.errors import BadInput
from siafu.report.files.checkpoint_state import CheckpointState

COUNTERS = {
    "max_staleness_seen": 1,
    "staleness_histogram": {"0": 5, "1": 2},
    "row_age_histogram": {"-1": 3},
    "weight_versions_peak": 2,
    "gradients_applied": 7,
    "bytes_scattered": 0,
    "recovery_seconds": 0.5,
    "lambda": {
        "invocations": 3,
        "usd": 0.25,
        "prices": {"region": "eu-west-1", "source": None},
        "kinds": {"T0": {"tasks": 2}},
        "weights": {"bytes": 5},
        "counts": [1, 2],
    },
}
STATE = CheckpointState(5, 1.5, 1000, COUNTERS, 123)

WRONG: list[Any] = [None, True, -1, 1.5, "5", [], {}, float("nan"), float("inf"), 10**30, [1], {"a": 1}]


def read(found: dict[str, Any], *, old: bool = False) -> CheckpointState:
    return CheckpointState.read(found, Path("c"), may_lack_checksum=old)


def refuse(found: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=r"^c is damaged .*copy the run again") as caught:
        read(found)
    assert "\n" not in str(caught.value)


def test_what_is_written_is_read() -> None:
    assert read(STATE.as_json()) == STATE


def test_an_older_state_lacks_counters_and_checksum() -> None:
    old = {"epoch": 5, "seconds": 2, "peak_rss_bytes": 3}
    assert read(old, old=True) == CheckpointState(5, 2, 3, {}, None)
    refuse(old)


@pytest.mark.parametrize("name", ["epoch", "seconds", "peak_rss_bytes", "metrics_crc32"])
def test_what_is_missing_is_refused(name: str) -> None:
    refuse({key: value for key, value in STATE.as_json().items() if key != name})


def test_what_is_not_known_is_refused() -> None:
    refuse({**STATE.as_json(), "colour": "red"})


@pytest.mark.parametrize("value", WRONG)
@pytest.mark.parametrize("name", ["epoch", "seconds", "peak_rss_bytes", "metrics_crc32", "counters"])
def test_what_is_of_another_type_is_refused(name: str, value: Any) -> None:
    allowed = (name == "seconds" and value == 1.5) or (name == "counters" and value == {})
    if not allowed:
        refuse({**STATE.as_json(), name: value})


@pytest.mark.parametrize("value", WRONG)
@pytest.mark.parametrize("name", [*COUNTERS, "unknown"])
def test_a_counter_of_another_type_is_refused(name: str, value: Any) -> None:
    empty = value == {} and name in ("staleness_histogram", "row_age_histogram", "lambda")
    number = name == "recovery_seconds" and value == 1.5
    usage = name == "lambda" and value == {"a": 1}
    if not (empty or number or usage):
        refuse({**STATE.as_json(), "counters": {**COUNTERS, name: value}})


@pytest.mark.parametrize("value", WRONG)
@pytest.mark.parametrize("name", ["prices", "kinds", "weights", "counts", "usd"])
def test_what_lambdas_did_of_another_type_is_refused(name: str, value: Any) -> None:
    fits = {"prices": [{}], "kinds": [{}], "weights": [{}, {"a": 1}], "counts": [[], [1]], "usd": [1.5]}
    if value not in fits[name] or isinstance(value, bool):
        refuse({**STATE.as_json(), "counters": {"lambda": {name: value}}})
