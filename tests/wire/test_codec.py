"""Messages survive the wire; whatever else comes is refused by name, before anything is made of it."""

import json
from contextlib import suppress
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from siafu.wire.codec import LONGEST_HEADER, PROTOCOL, decode, encode
from siafu.wire.messages import (
    AskTask,
    AskWeights,
    Hello,
    Message,
    ProgramText,
    Refused,
    TaskEnd,
    TaskInputPart,
    WeightsReply,
    part_bounds,
)
from siafu.wire.refusal import Refusal
from siafu.wire.tensors import Tensors

START = b"siafu" + bytes([PROTOCOL])

numbers = st.integers(0, 2**63 - 1)
names = st.text("abcdefgh/ö_0", min_size=1, max_size=20)
texts = st.text(st.characters(categories=("L", "N", "P")), max_size=50)
tensors = st.dictionaries(
    names,
    st.sampled_from(["float32", "float64", "int64", "uint8", "bool"]).flatmap(
        lambda kind: arrays.arrays(kind, arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    ),
    max_size=4,
)
_OF = {
    int: numbers,
    str: texts,
    tuple[str, ...]: st.lists(names, unique=True, max_size=5).map(tuple),
    Tensors: tensors,
}


def any_message() -> st.SearchStrategy[Message]:
    return st.one_of(
        *(
            st.builds(kind, **{name: _OF[of] for name, of in kind.__annotations__.items()})
            for kind in get_args(Message)
        )
    )


def same(a: Message, b: Message) -> bool:
    left, right = ({name: getattr(each, name) for name in type(a).__annotations__} for each in (a, b))
    one, other = left.pop("tensors", {}), right.pop("tensors", {})
    return (
        type(a) is type(b)
        and left == right
        and list(one) == list(other)
        and all(
            x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()
            for x, y in zip(one.values(), other.values(), strict=True)
        )
    )


def rows() -> TaskInputPart:
    return TaskInputPart(3, 0, {"rows/0": np.arange(6, dtype=np.float32).reshape(2, 3)})


def with_header(message: Message, change: Any) -> list[bytes]:
    """The message's frames with another header."""
    header, *frames = map(bytes, encode(message))
    form = json.loads(header[6:])
    change(form)
    return [header[:6] + json.dumps(form).encode(), *frames]


def refuse(frames: list[bytes], reason: str, text: str) -> None:
    with pytest.raises(Refusal, match=text) as caught:
        decode(frames)
    assert caught.value.reason == reason


@given(any_message())
def test_every_message_comes_out_as_it_went_in(message: Message) -> None:
    assert same(decode([bytes(each) for each in encode(message)]), message)


@given(any_message(), st.data())
def test_a_message_with_a_byte_changed_is_a_message_or_a_refusal(message: Message, data: Any) -> None:
    frames = [bytearray(each) for each in encode(message)]
    frame = data.draw(st.sampled_from(frames))
    if frame:
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    with suppress(Refusal):
        decode([bytes(each) for each in frames])


def test_tensors_are_not_copied_on_either_side() -> None:
    message = rows()
    frames = encode(message)
    assert np.shares_memory(message.tensors["rows/0"], np.frombuffer(frames[1], np.uint8))
    assert np.shares_memory(decode(frames).tensors["rows/0"], np.frombuffer(frames[1], np.uint8))  # type: ignore[union-attr]


def test_rows_that_are_not_contiguous_are_sent_as_they_look() -> None:
    table = np.arange(12.0).reshape(3, 4)
    came = decode(encode(WeightsReply(1, {"w": table[:, :2]})))
    assert isinstance(came, WeightsReply)
    np.testing.assert_array_equal(came.tensors["w"], table[:, :2])


def test_a_tensor_from_an_odd_address_is_aligned() -> None:
    header, frame = encode(WeightsReply(1, {"w": np.arange(4.0)}))
    odd = memoryview(b"\0" + bytes(frame))[1:]
    came = decode([header, odd])
    assert isinstance(came, WeightsReply)
    assert came.tensors["w"].flags.aligned
    np.testing.assert_array_equal(came.tensors["w"], np.arange(4.0))


def test_bytes_that_are_no_message_are_refused() -> None:
    refuse([b"GET / HTTP/1.1"], "header", "no message of Siafu's")
    refuse([b""], "header", "no message")
    refuse([], "frames", "0 frames")
    refuse([START + b"[1]"], "header", "no JSON object")
    refuse([START + b"[" * 100_000], "header", "not JSON")
    refuse([START + b" " * LONGEST_HEADER], "frames", "a header of")
    refuse([START + b'{"is":"Shell"}'], "header", "kind")


def test_another_protocol_is_refused_with_what_to_do() -> None:
    header = bytearray(encode(AskTask(1))[0])
    header[5] = PROTOCOL + 1
    refuse([bytes(header)], "version", "deploy the Lambda again")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda form: form.update(extra=1), "other fields"),
        (lambda form: form.pop("credit"), "other fields"),
        (lambda form: form.update(credit=-1), "'credit' is no whole number"),
        (lambda form: form.update(credit=True), "'credit' is no whole number"),
        (lambda form: form.update(credit=1.5), "'credit' is no whole number"),
        (lambda form: form.update(credit=2**63), "'credit' is no whole number"),
        (lambda form: form.update(credit=None), "'credit' is no whole number"),
    ],
)
def test_a_field_that_does_not_fit_is_refused_by_name(change: Any, text: str) -> None:
    refuse(with_header(AskTask(1), change), "field", text)


@pytest.mark.parametrize("why", ["x" * 1001, "two\nlines", "\ud800", 5])
def test_a_text_that_could_spoil_a_log_is_refused(why: Any) -> None:
    refuse(with_header(Refused(""), lambda form: form.update(why=why)), "field", "'why' is no line")


@pytest.mark.parametrize(
    "given_names", [[""], ["a", "a"], ["x" * 257], "a", [1], [f"w{k}" for k in range(2000)]]
)
def test_names_that_do_not_fit_are_refused(given_names: Any) -> None:
    refuse(
        with_header(AskWeights(1, ("a",)), lambda form: form.update(names=given_names)), "field", "'names'"
    )


@pytest.mark.parametrize(
    ("described", "text"),
    [
        (["rows/0", "float32", [2**40, 2**40]], "declared with"),
        (["rows/0", "float32", [2, 4]], "declared with 32 bytes, sent with 24"),
        (["rows/0", "float32", [-2, -3]], "cannot be"),
        (["rows/0", "float32", [2**60]], "cannot be"),
        (["rows/0", "float32", [2.0, 3.0]], "cannot be"),
        (["rows/0", "float32", [1] * 9], "without a shape"),
        (["rows/0", "float32", 6], "without a shape"),
        (["rows/0", "object", [2, 3]], "type that the wire does not carry"),
        (["rows/0", ["float32"], [2, 3]], "type that the wire does not carry"),
        (["", "float32", [2, 3]], "name of its own"),
        (["rows/0", "float32"], "not described"),
        ("rows/0", "not described"),
    ],
)
def test_a_tensor_that_is_not_as_declared_is_refused(described: Any, text: str) -> None:
    refuse(with_header(rows(), lambda form: form.update(tensors=[described])), "tensor", text)


def test_sizes_that_multiply_to_nothing_are_refused_all_the_same() -> None:
    frames = with_header(rows(), lambda form: form.update(tensors=[["a", "float64", [2**47, 2**47, 0]]]))
    refuse([frames[0], b""], "tensor", "cannot be")


def test_two_tensors_of_one_name_are_refused() -> None:
    frames = with_header(rows(), lambda form: form["tensors"].append(form["tensors"][0]))
    refuse([*frames, frames[1]], "tensor", "name of its own")


def test_frames_that_are_missing_or_too_many_are_refused() -> None:
    header, frame = map(bytes, encode(rows()))
    refuse([header], "frames", "does not describe")
    refuse([header, frame, frame], "frames", "does not describe")
    refuse([header, frame[:-1]], "tensor", "sent with 23")
    refuse([bytes(encode(AskTask(1))[0]), frame], "frames", "has no tensors")
    refuse([header] * 5000, "frames", "5000 frames")


def test_a_truth_that_is_neither_is_refused() -> None:
    header, _ = encode(TaskInputPart(0, 0, {"m": np.array([True, False])}))
    refuse([bytes(header), b"\x01\x02"], "tensor", "neither 0 nor 1")


def test_what_the_wire_does_not_carry_is_not_sent() -> None:
    with pytest.raises(TypeError, match="complex128"):
        encode(TaskEnd(0, 0, 0, {"a": np.zeros(1, complex)}))
    with pytest.raises(ValueError, match="too large"):
        encode(Hello("r", 0, 0, tuple("x" * 200 + str(k) for k in range(1000))))


def test_a_program_that_is_not_its_hash_is_refused() -> None:
    import hashlib

    text = '{"format":1}'
    assert ProgramText.of(hashlib.sha256(text.encode()).hexdigest(), text).text() == text
    with pytest.raises(Refusal, match="its hash"):
        ProgramText.of("0" * 64, text).text()
    with pytest.raises(Refusal, match="bytes of its JSON"):
        ProgramText("0" * 64, {"json": np.zeros(2)}).text()


@given(st.integers(0, 10_000), st.integers(1, 50))
def test_parts_cover_all_rows_once(rows: int, parts: int) -> None:
    bounds = [part_bounds(rows, parts, part) for part in range(parts)]
    assert [row for first, last in bounds for row in range(first, last)] == list(range(rows))
