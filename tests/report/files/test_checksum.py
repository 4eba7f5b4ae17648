"""Checksums that a file holds of itself."""

import json

import pytest

from siafu.report.files.checksum import BLANK, KEY, is_sealed, is_whole, sealed

TEXT = json.dumps({"name": "toy", "number": 5, KEY: BLANK}, indent=1).encode()


def test_a_sealed_file_is_whole() -> None:
    assert is_whole(sealed(TEXT))
    assert json.loads(sealed(TEXT))["name"] == "toy"


def test_every_changed_bit_is_found() -> None:
    content = sealed(TEXT)
    for place in range(len(content)):
        for bit in range(8):
            damaged = bytearray(content)
            damaged[place] ^= 1 << bit
            assert not is_whole(bytes(damaged)), (place, bit)


@pytest.mark.parametrize("damaged", [b"", b"{}", sealed(TEXT)[:-1], sealed(TEXT) + b" ", sealed(TEXT) * 2])
def test_what_is_cut_or_added_is_found(damaged: bytes) -> None:
    assert not is_whole(damaged)


def test_only_the_head_of_a_file_is_looked_at() -> None:
    content = sealed(TEXT + TEXT, head=len(TEXT))
    assert is_whole(content, head=len(TEXT))
    assert not is_whole(content)
    assert not is_sealed(content[:10], head=10)


@pytest.mark.parametrize("content", [b"{}", TEXT * 2, sealed(TEXT)])
def test_a_file_has_exactly_one_place_for_it(content: bytes) -> None:
    with pytest.raises(ValueError, match="no place"):
        sealed(content)


def test_text_that_looks_like_one_is_none() -> None:
    quoted = json.dumps({"name": f'"{KEY}": "{BLANK}"', KEY: BLANK}).encode()
    assert is_whole(sealed(quoted))
