"""Documents of others: parsed, or refused in one line, whatever is in them."""

import pytest

from siafu.base.storage.documents import one_line, parse_json, parse_yaml

LAUGHS = "\n".join(
    ["a0: &a0 [ha, ha]", *(f"a{k}: &a{k} [*a{k - 1}, *a{k - 1}, *a{k - 1}]" for k in range(1, 40))]
)
MERGES = "\n".join(
    ["a0: &a0 {x: 1}", *(f"a{k}: &a{k} {{<<: [*a{k - 1}, *a{k - 1}], y{k}: 1}}" for k in range(1, 40))]
)


def test_plain_documents_are_parsed() -> None:
    assert parse_json(b'{"a": [1, 2.5, null]}') == {"a": [1, 2.5, None]}
    assert parse_yaml(b"a: [1, 2.5, null]") == {"a": [1, 2.5, None]}


def test_aliases_that_stand_for_little_are_parsed() -> None:
    assert parse_yaml(b"one: &x {path: a.npy}\nother: *x") == {
        "one": {"path": "a.npy"},
        "other": {"path": "a.npy"},
    }


@pytest.mark.parametrize("text", ["[" * 20_000, '{"a":' * 20_000, "9" * 5000, "{", "", "\udcff"])
def test_json_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_json(text.encode(errors="surrogateescape"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{" * 20_000, "nested more than 64 deep"),
        ("- " * 20_000, "nested more than 64 deep"),
        (LAUGHS, "stands for more than 100,000 values"),
        (MERGES, "stands for more than 100,000 values"),
        ("a: &a [*a]", r"\*a stands for nothing, or for what it is part of"),
        ("a: *b", r"\*b stands for nothing, or for what it is part of"),
        ("9" * 5000, "a value has 5,000 characters"),
        ("1" + ":1" * 3000, "a value has 6,001 characters"),
        ("a: 2024-13-45", "month must be in"),
        ("a: [", "expected"),
        ("a: !!python/object/apply:os.system [true]", "could not determine a constructor"),
        ("#" * (1 << 20) + "#", "at most 1,048,576 are read"),
        ("\udcff", "invalid start byte|unacceptable character"),
        ("a: 1\n---\nb: 2", "expected a single document"),
    ],
)
def test_yaml_that_cannot_be_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as caught:
        parse_yaml(text.encode(errors="surrogateescape"))
    assert str(caught.value).isprintable()


def test_what_an_error_says_fits_a_line() -> None:
    assert one_line("a\n  b\tc") == "a b c"
    assert one_line("a\x1b[31m\x00") == "a?[31m?"
    assert len(one_line("x" * 10_000)) == 301
    assert one_line(ValueError()) == "ValueError"
