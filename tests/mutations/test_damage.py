import json

import pytest

from tests.mutations.damage import BYTE_DAMAGES, JSON_DAMAGES, byte_damage, json_damage

CONTENT = bytes(range(256)) * 40
DOCUMENT = json.dumps({"version": 1, "name": "a", "loss": 0.5, "rows": [1, 2, {"deep": None}]}).encode()


@pytest.mark.parametrize("seed", range(3 * len(BYTE_DAMAGES)))
def test_a_seed_damages_bytes_in_the_same_way_each_time(seed):
    assert byte_damage(seed)(CONTENT) == byte_damage(seed)(CONTENT) != CONTENT


@pytest.mark.parametrize("seed", range(3 * len(JSON_DAMAGES)))
def test_a_seed_damages_json_in_the_same_way_each_time(seed):
    assert json_damage(seed)(DOCUMENT) == json_damage(seed)(DOCUMENT) != DOCUMENT


@pytest.mark.parametrize("seed", range(len(BYTE_DAMAGES)))
@pytest.mark.parametrize("size", [0, 1, 2, 65])
def test_short_files_can_be_damaged_too(seed, size):
    assert isinstance(byte_damage(seed)(bytes(size)), bytes)


@pytest.mark.parametrize("seed", range(len(JSON_DAMAGES)))
@pytest.mark.parametrize("document", ["null", "[]", "{}", "7"])
def test_short_documents_can_be_damaged_too(seed, document):
    assert isinstance(json_damage(seed)(document.encode()), bytes)


def test_consecutive_seeds_hold_every_kind_once():
    assert {byte_damage(seed).name for seed in range(len(BYTE_DAMAGES))} == set(BYTE_DAMAGES)
    assert {json_damage(seed).name for seed in range(len(JSON_DAMAGES))} == set(JSON_DAMAGES)
