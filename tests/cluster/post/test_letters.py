"""Events as letters: what goes in comes out, and nothing else gets in."""

import dataclasses
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from siafu.cluster.post.letters import _KINDS, Postmark, decode, encode
from siafu.cluster.post.requests import LogLine
from siafu.pipeline.events import Event, Proceed, WeightsAsked
from siafu.pipeline.ids import RUN, Address, Anchor, Epoch, Incarnation, IntervalId, Life, ServerId, Version
from siafu.pipeline.stamp import Stamp
from siafu.runtime.letter import Letter
from siafu.wire.refusal import Refusal

ME = Address("graph", ServerId(3))
STAMP = Postmark(ME, 2, 17)
EVENTS = st.sampled_from(sorted(_KINDS)).flatmap(lambda name: st.from_type(_KINDS[name]))
ASKED = WeightsAsked(ME, IntervalId(5), Epoch(6), None, Version(7))


def frames_of(**changes: Any) -> list[bytes]:
    """The frames of a good letter, but for what is changed in its header."""
    header, *rest = encode(STAMP, Letter(ASKED, {"rows": np.arange(6.0).reshape(2, 3)}, (1, 2)))
    start = bytes(header).index(b"{")
    form = json.loads(bytes(header)[start:]) | changes
    return [bytes(header)[:start] + json.dumps(form).encode(), *map(bytes, rest)]


def same(one: Event, other: Event) -> bool:
    """Equal, where not-a-number is itself."""
    return type(one) is type(other) and repr(one) == repr(other)


@given(EVENTS, st.integers(0, 2**40), st.integers(-(2**40), 2**40), st.lists(st.integers(), max_size=5))
def test_every_event_comes_out_as_it_went_in(event: Event, life: int, number: int, places: list[int]) -> None:
    stamp = Postmark(ME, life, number)
    came_stamp, came = decode([bytes(each) for each in encode(stamp, Letter(event, {}, tuple(places)))])
    assert came_stamp == stamp
    assert same(came.event, event)
    assert came.places == tuple(places)


def test_its_stamp_travels_beside_it_and_must_be_its_senders() -> None:
    stamp = Stamp(Incarnation(3), ME, Life(2), Life(5))
    _, came = decode(encode(STAMP, Letter(ASKED, stamp=stamp)))
    assert came.stamp == stamp
    for forged in (replace(stamp, life=Life(3)), replace(stamp, sender=RUN)):
        with pytest.raises(Refusal):
            decode(encode(STAMP, Letter(ASKED, stamp=forged)))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8", "bool"])
@pytest.mark.parametrize("shape", [(), (0,), (0, 4), (3, 5)])
def test_tensors_travel_beside_it(dtype: str, shape: tuple[int, ...]) -> None:
    array = (np.random.default_rng(0).random(shape) * 2).astype(dtype)
    _, came = decode(encode(STAMP, Letter(ASKED, {"a": array, "b.c": array})))
    assert list(came.tensors) == ["a", "b.c"]
    np.testing.assert_array_equal(came.tensors["b.c"], array)
    assert came.tensors["a"].dtype == array.dtype


def test_tensors_are_not_copied_on_their_way_out() -> None:
    rows = np.zeros((4, 8))
    frames = encode(STAMP, Letter(ASKED, {"rows": rows}))
    assert np.shares_memory(np.frombuffer(frames[1], np.uint8), rows)


@given(st.lists(st.binary(max_size=200), max_size=4))
def test_bytes_that_are_no_letter_are_refused(frames: list[bytes]) -> None:
    with pytest.raises(Refusal):
        decode(frames)


@settings(max_examples=300)
@given(st.data())
def test_a_letter_with_some_bytes_changed_is_refused_or_still_well_formed(data: st.DataObject) -> None:
    frames = [bytearray(each) for each in frames_of()]
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(frames[0]) - 1))
        frames[0][place] = data.draw(st.integers(0, 255))
    try:
        _, letter = decode([bytes(each) for each in frames])
    except Refusal:
        return
    assert isinstance(letter.event, Event)
    assert all(type(place) is int for place in letter.places)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(["is", "mark", "stamp", "event", "places", "tensors"]), JSON)
def test_any_field_that_is_something_else_is_refused(field: str, value: Any) -> None:
    good = json.loads(json.dumps({"places": [1, 2]}))
    if field == "places" and (value == good["places"] or _whole(value)):
        return
    if field == "stamp" and value is None:
        return  # of a letter to a process
    with pytest.raises(Refusal):
        decode(frames_of(**{field: value}))


def _whole(value: Any) -> bool:
    return isinstance(value, list) and all(type(each) is int for each in value)


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(WeightsAsked)])
@pytest.mark.parametrize("value", [True, 1.5, "1", [], {}, {"role": "king", "index": 0}])
def test_a_value_of_another_type_than_the_fields_is_refused(name: str, value: Any) -> None:
    with pytest.raises(Refusal):
        decode(frames_of(event=dataclasses.asdict(ASKED) | {name: value}))


@pytest.mark.parametrize(
    "event",
    [
        dataclasses.asdict(ASKED) | {"more": 1},
        {name: each for name, each in dataclasses.asdict(ASKED).items() if name != "epoch"},
        [],
        None,
    ],
    ids=["more", "fewer", "list", "nothing"],
)
def test_an_event_with_other_fields_is_refused(event: Any) -> None:
    with pytest.raises(Refusal):
        decode(frames_of(event=event))


@pytest.mark.parametrize("name", ["Event", "Letter", "object", "__class__", "", 7, None, ["Begin"]])
def test_a_kind_that_is_no_event_is_refused(name: Any) -> None:
    with pytest.raises(Refusal):
        decode(frames_of(**{"is": name}))


def test_a_header_or_text_of_any_length_is_refused() -> None:
    with pytest.raises(Refusal):
        decode(encode(STAMP, Letter(LogLine(ME, "x" * (1 << 21)))))
    with pytest.raises(Refusal):
        decode(encode(STAMP, Letter(LogLine(ME, "x" * (1 << 17)))))
    with pytest.raises(Refusal):
        decode(encode(STAMP, Letter(ASKED, {}, tuple(range(1 << 17)))))


def test_nesting_without_end_is_refused() -> None:
    header = frames_of()[0]
    magic = header[: header.index(b"{")]
    with pytest.raises(Refusal):
        decode([magic + b"[" * 100_000])
    with pytest.raises(Refusal):
        decode([magic + b'{"is":' * 50_000])


@pytest.mark.parametrize(
    "described",
    [
        [["rows", "float64", [2, 4]]],
        [["rows", "float64", [-2, -3]]],
        [["rows", "object", [6]]],
        [["rows", "float64", [2, 3]], ["rows", "float64", [2, 3]]],
        [["", "float64", [2, 3]]],
        [],
    ],
    ids=["too small", "negative", "objects", "twice", "nameless", "not described"],
)
def test_tensors_that_are_not_as_described_are_refused(described: Any) -> None:
    with pytest.raises(Refusal):
        decode(frames_of(tensors=described))


def test_a_letter_of_another_protocol_says_what_to_do() -> None:
    header, *rest = frames_of()
    end = header.index(b"{") - 1
    with pytest.raises(Refusal, match="use one version on all machines"):
        decode([header[:end] + bytes([99]) + header[end + 1 :], *rest])


def test_optional_fields_come_out_absent_or_present() -> None:
    for exact in (None, Anchor(Epoch(3), Version(4))):
        event = Proceed(Epoch(9), exact)
        assert decode(encode(STAMP, Letter(event)))[1].event == event
