"""Seeded damage to bytes and to JSON documents: the same seed and the same bytes always give the same damaged bytes.

    damage = byte_damage(7)            # or json_damage(7)
    broken = damage(path.read_bytes())
    print(damage.name)                 # "flip a bit": for the message of a case that fails

Seeds walk through the kinds in turn: `len(BYTE_DAMAGES)` consecutive seeds hold every kind once. The result always
differs from what came in, except where nothing can be changed (an empty file that is to be cut stays empty).
"""

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Change = Callable[[random.Random, bytes], bytes]
ChangeJson = Callable[[random.Random, Any], str]

BLOCK = 64
TRIES = 20


@dataclass(frozen=True)
class Damage:
    """One way to damage bytes, with its place and values fixed by the seed."""

    name: str
    seed: int
    change: Change

    def __call__(self, content: bytes) -> bytes:
        dice = random.Random(self.seed)
        for _ in range(TRIES):
            damaged = self.change(dice, content)
            if damaged != content:
                return damaged
        return content


def byte_damage(seed: int) -> Damage:
    """The seed's damage to any bytes."""
    return _pick(BYTE_DAMAGES, seed)


def json_damage(seed: int) -> Damage:
    """The seed's damage to the bytes of a JSON document; its result may be no JSON any more."""
    return _pick(JSON_DAMAGES, seed)


def _pick(kinds: dict[str, Change], seed: int) -> Damage:
    name = list(kinds)[seed % len(kinds)]
    return Damage(name, seed, kinds[name])


# Bytes.


def _flip_a_bit(dice: random.Random, content: bytes) -> bytes:
    if not content:
        return content
    damaged = bytearray(content)
    damaged[dice.randrange(len(damaged))] ^= 1 << dice.randrange(8)
    return bytes(damaged)


def _change_a_byte(dice: random.Random, content: bytes) -> bytes:
    if not content:
        return content
    damaged = bytearray(content)
    damaged[dice.randrange(len(damaged))] = dice.randrange(256)
    return bytes(damaged)


def _cut_the_end(dice: random.Random, content: bytes) -> bytes:
    return content[: dice.randrange(len(content))] if content else content


def _cut_one_byte(dice: random.Random, content: bytes) -> bytes:
    return content[:-1]


def _empty(dice: random.Random, content: bytes) -> bytes:
    return b""


def _cut_the_start(dice: random.Random, content: bytes) -> bytes:
    return content[1 + dice.randrange(len(content)) :] if content else content


def _append(dice: random.Random, content: bytes) -> bytes:
    return content + dice.randbytes(1 + dice.randrange(BLOCK))


def _append_zeros(dice: random.Random, content: bytes) -> bytes:
    return content + bytes(1 + dice.randrange(4096))


def _append_itself(dice: random.Random, content: bytes) -> bytes:
    return content + content


def _insert(dice: random.Random, content: bytes) -> bytes:
    at = dice.randrange(len(content) + 1)
    return content[:at] + dice.randbytes(1 + dice.randrange(8)) + content[at:]


def _remove_a_block(dice: random.Random, content: bytes) -> bytes:
    at = dice.randrange(len(content) + 1)
    return content[:at] + content[at + 1 + dice.randrange(BLOCK) :]


def _overwrite_a_block(dice: random.Random, content: bytes, block: bytes) -> bytes:
    at = dice.randrange(max(1, len(content) - len(block)))
    return (content[:at] + block + content[at + len(block) :])[: len(content)]


def _zero_a_block(dice: random.Random, content: bytes) -> bytes:
    return _overwrite_a_block(dice, content, bytes(1 + dice.randrange(BLOCK)))


def _zero_a_page(dice: random.Random, content: bytes) -> bytes:
    """Zero 4 KB at a multiple of 4 KB, as a file system does that lost a page in a crash."""
    at = 4096 * dice.randrange(len(content) // 4096 + 1)
    page = content[at : at + 4096]
    return content[:at] + bytes(len(page)) + content[at + len(page) :]


def _fill_a_block(dice: random.Random, content: bytes) -> bytes:
    return _overwrite_a_block(dice, content, b"\xff" * (1 + dice.randrange(BLOCK)))


def _scramble_a_block(dice: random.Random, content: bytes) -> bytes:
    return _overwrite_a_block(dice, content, dice.randbytes(1 + dice.randrange(BLOCK)))


def _swap_blocks(dice: random.Random, content: bytes) -> bytes:
    size = min(BLOCK, len(content) // 2)
    if not size:
        return content
    first = dice.randrange(len(content) - 2 * size + 1)
    second = first + size + dice.randrange(len(content) - first - 2 * size + 1)
    one, other = content[first : first + size], content[second : second + size]
    return content[:first] + other + content[first + size : second] + one + content[second + size :]


def _double_a_block(dice: random.Random, content: bytes) -> bytes:
    at = dice.randrange(len(content) + 1)
    return content[: at + BLOCK] + content[at:]


def _huge_number(dice: random.Random, content: bytes) -> bytes:
    """Write a huge length over 8 bytes near the start, where headers keep their sizes."""
    number = dice.choice([2**31 - 1, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1])
    at = dice.choice([0, 0, 8, 16, dice.randrange(64)])
    return (content[:at] + number.to_bytes(8, "little") + content[at + 8 :])[: len(content)]


def _garbage(dice: random.Random, content: bytes) -> bytes:
    return dice.randbytes(max(1, min(len(content), 4096)))


BYTE_DAMAGES: dict[str, Change] = {
    "flip a bit": _flip_a_bit,
    "cut the end": _cut_the_end,
    "append random bytes": _append,
    "zero a block": _zero_a_block,
    "swap two blocks": _swap_blocks,
    "change a byte": _change_a_byte,
    "huge number near the start": _huge_number,
    "insert bytes": _insert,
    "remove a block": _remove_a_block,
    "scramble a block": _scramble_a_block,
    "cut one byte": _cut_one_byte,
    "append zeros": _append_zeros,
    "zero a page": _zero_a_page,
    "fill a block with ones": _fill_a_block,
    "double a block": _double_a_block,
    "cut the start": _cut_the_start,
    "empty": _empty,
    "append the file to itself": _append_itself,
    "garbage": _garbage,
}


# JSON documents: one value, anywhere in the document, is changed.

Place = tuple[Any, Any]  # the list or dict, and the index or key in it

DEEP = 20_000  # deeper than any parser that recurses


def _places(document: Any) -> Iterator[Place]:
    if isinstance(document, dict):
        items: Any = document.items()
    elif isinstance(document, list):
        items = enumerate(document)
    else:
        return
    for key, value in items:
        yield document, key
        yield from _places(value)


def _somewhere(dice: random.Random, document: Any) -> Place | None:
    places = list(_places(document))
    return dice.choice(places) if places else None


def _with_value(dice: random.Random, document: Any, value: Callable[[Any], Any]) -> str:
    place = _somewhere(dice, document)
    if place is None:
        return json.dumps(value(document))
    within, key = place
    within[key] = value(within[key])
    return json.dumps(document)


def _with_text(dice: random.Random, document: Any, text: str) -> str:
    """Text in place of a value, whether or not it is JSON."""
    mark = "\x00here\x00"
    return _with_value(dice, document, lambda _: mark).replace(json.dumps(mark), text)


def _delete_a_key(dice: random.Random, document: Any) -> str:
    place = _somewhere(dice, document)
    if place is None:
        return ""
    within, key = place
    del within[key]
    return json.dumps(document)


def _rename_a_key(dice: random.Random, document: Any) -> str:
    place = _somewhere(dice, document)
    if place is None or not isinstance(place[0], dict):
        return json.dumps(document)
    within, key = place
    within[f"{key}_"] = within.pop(key)
    return json.dumps(document)


def _add_a_key(dice: random.Random, document: Any) -> str:
    place = _somewhere(dice, document)
    if place is None or not isinstance(place[0], dict):
        return json.dumps(document)
    place[0][f"unknown_{dice.randrange(100)}"] = dice.choice([None, 1, "text", {}])
    return json.dumps(document)


def _wrong_type(dice: random.Random, document: Any) -> str:
    others = [None, True, 0, 1.5, "text", "", [], {}, [1], {"a": 1}, "\ud800", -1]
    return _with_value(
        dice,
        document,
        lambda value: dice.choice([other for other in others if type(other) is not type(value)]),
    )


def _huge_value(dice: random.Random, document: Any) -> str:
    huge = ["9" * 30, str(2**31), str(2**63), str(-(2**63) - 1), "1e999", "-1e999", "9" * 5000]
    return _with_text(dice, document, dice.choice(huge))


def _not_a_number(dice: random.Random, document: Any) -> str:
    return _with_text(dice, document, dice.choice(["NaN", "Infinity", "-Infinity"]))


def _deep_nesting(dice: random.Random, document: Any) -> str:
    start, end = dice.choice([("[", "]"), ('{"a":', "}")])
    return _with_text(dice, document, start * DEEP + "1" + end * DEEP)


def _duplicate_key(dice: random.Random, document: Any) -> str:
    """Say a key of the outermost object a second time, with another value."""
    if not isinstance(document, dict) or not document:
        return json.dumps(document)
    key = dice.choice(list(document))
    other = dice.choice([None, 0, "text", []])
    return f"{json.dumps(document)[:-1]}, {json.dumps(key)}: {json.dumps(other)}}}"


def _changed_number(dice: random.Random, document: Any) -> str:
    """Another number of the same type: right for every schema, and still not what was written."""
    numbers = [(within, key) for within, key in _places(document) if type(within[key]) in (int, float)]
    if not numbers:
        return json.dumps(document)
    within, key = dice.choice(numbers)
    within[key] += dice.choice([1, -1, 2, 7])
    return json.dumps(document)


def _changed_text(dice: random.Random, document: Any) -> str:
    texts = [(within, key) for within, key in _places(document) if isinstance(within[key], str)]
    if not texts:
        return json.dumps(document)
    within, key = dice.choice(texts)
    within[key] = dice.choice(["", "../../etc/passwd", "\x00", within[key] + "x", "line\nline", "é" * 40])
    return json.dumps(document)


def _whole_document(dice: random.Random, document: Any) -> str:
    return dice.choice(["null", "[]", "{}", "1", '"text"', "true", "{", "[{}]"])


def _in_json(change: ChangeJson) -> Change:
    return lambda dice, content: change(dice, json.loads(content)).encode(errors="surrogatepass")


JSON_DAMAGES: dict[str, Change] = {
    "delete a key": _in_json(_delete_a_key),
    "wrong type": _in_json(_wrong_type),
    "huge value": _in_json(_huge_value),
    "deep nesting": _in_json(_deep_nesting),
    "duplicate key": _in_json(_duplicate_key),
    "not a number": _in_json(_not_a_number),
    "changed number": _in_json(_changed_number),
    "changed text": _in_json(_changed_text),
    "rename a key": _in_json(_rename_a_key),
    "add a key": _in_json(_add_a_key),
    "another document": _in_json(_whole_document),
}
