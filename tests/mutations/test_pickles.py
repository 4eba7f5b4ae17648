"""Damaged and hostile Planetoid files: refused in one line, or a graph like any other; nothing in them ever runs."""

import pickle
import struct
from pathlib import Path

import numpy as np
import pytest

from siafu.base.errors import BadInput
from siafu.graph.datasets import unpickle as module
from siafu.graph.datasets.planetoid import FILES, read_planetoid
from siafu.graph.datasets.unpickle import unpickle
from tests.graph.test_datasets import _write_planetoid

from .damage import byte_damage
from .guard import bytes_in, outcome, seeds

pytestmark = pytest.mark.slow

GLOBAL, BUILD, REDUCE, STOP = b"c%s\n", pickle.BUILD, pickle.REDUCE, pickle.STOP


@pytest.mark.parametrize("seed", seeds(19))
@pytest.mark.parametrize("part", [part for part in FILES if part not in ("x", "tx", "ty")])
def test_a_damaged_file(tmp_path: Path, part: str, seed: int) -> None:
    _write_planetoid(tmp_path, test_index=[508, 506, 507])
    file = tmp_path / f"ind.tiny.{part}"
    file.write_bytes(byte_damage(seed)(file.read_bytes()))
    graph = outcome(lambda: read_planetoid(tmp_path, "tiny"), bytes_in(tmp_path))
    if isinstance(graph, BadInput):
        return
    assert graph.x is not None and graph.y is not None and graph.val is not None
    assert graph.x.shape == (graph.num_vertices, graph.num_features)
    assert graph.num_vertices <= 2 * 509
    assert graph.is_symmetric and graph.num_self_loops == 0
    assert len(graph.val) == 500


def named(module_name: str, name: str) -> bytes:
    return b"c" + f"{module_name}\n{name}\n".encode()


def binary(code: bytes, form: str, value: int) -> bytes:
    return code + struct.pack(form, value)


RECONSTRUCT = named("numpy.core.multiarray", "_reconstruct")
DTYPE = named("numpy", "dtype") + b"(U\x02f4K\x00K\x01t" + REDUCE
HOSTILE = {
    "a call of the system": named("os", "system") + b"(U\x04truet" + REDUCE + STOP,
    "eval by its old name": named("__builtin__", "eval") + b"(U\x031+1t" + REDUCE + STOP,
    "a function of ours": named("siafu.graph.datasets.unpickle", "unpickle") + STOP,
    "an attribute of an attribute": b"\x80\x04\x8c\x05numpy\x8c\x0cndarray.dump\x93.",
    "bytes beyond the file": binary(pickle.BINBYTES8, "<Q", 2**40) + b"x.",
    "text beyond the file": binary(pickle.BINUNICODE8, "<Q", 2**40) + b"x.",
    "a buffer beyond the file": binary(pickle.BYTEARRAY8, "<Q", 2**40) + b"x.",
    "a string of a negative length": binary(pickle.BINSTRING, "<i", -1) + b"x.",
    "a frame beyond the file": b"\x80\x04" + binary(pickle.FRAME, "<Q", 2**50) + b"N.",
    "a memo beyond memory": b"N" + binary(pickle.LONG_BINPUT, "<I", 2**32 - 1) + STOP,
    "a number of many digits": b"L" + b"9" * 100_000 + b"L\n.",
    "an array of a huge shape": RECONSTRUCT
    + b"("
    + named("numpy", "ndarray")
    + b"(L1099511627776L\ntU\x01bt"
    + REDUCE
    + STOP,
    "a type of objects": named("numpy", "dtype") + b"(U\x02O8K\x00K\x01t" + REDUCE + STOP,
    "a type of endless strings": named("numpy", "dtype") + b"(U\x0bS2147483647K\x00K\x01t" + REDUCE + STOP,
    "contents for a function": RECONSTRUCT + b"}(U\x0c__defaults__Nu" + BUILD + STOP,
    "contents for a class": named("scipy.sparse.csr", "csr_matrix")
    + b"N}(U\x08to_denseK\x01u\x86"
    + BUILD
    + STOP,
    "contents for a type": named("__builtin__", "list") + b"}(U\x06appendK\x01u" + BUILD + STOP,
    "an array without contents": RECONSTRUCT
    + b"("
    + named("numpy", "ndarray")
    + b"(K\x00tU\x01bt"
    + REDUCE
    + STOP,
    "brackets without end": b"(" * 100_000 + STOP,
    "nothing": b"",
    "only a stop": STOP,
    "a name that ends in the middle": b"cnumpy",
    "an extension": b"\x80\x02\x82\x01.",
    "a persistent id": b"P1\n.",
}
HARMLESS = ("a frame beyond the file", "a memo beyond memory")
"""Pickles of None, as long as nobody allocates what they announce."""


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_pickle(tmp_path: Path, what: str) -> None:
    before = (module._array.__defaults__, module.PickledCsr.to_dense)
    (tmp_path / "evil").write_bytes(HOSTILE[what])
    found = outcome(lambda: unpickle(tmp_path / "evil"), 1)
    assert isinstance(found, BadInput) or (found is None and what in HARMLESS)
    assert (module._array.__defaults__, module.PickledCsr.to_dense) == before


def test_a_pickle_that_doubles_itself_is_no_graph(tmp_path: Path) -> None:
    """Thirty doublings stand for a billion values, of which only the thirty are held."""
    _write_planetoid(tmp_path, test_index=[508, 506, 507])
    (tmp_path / "ind.tiny.graph").write_bytes(b"\x80\x02]" + b"2\x86" * 30 + STOP)
    assert isinstance(outcome(lambda: read_planetoid(tmp_path, "tiny"), bytes_in(tmp_path)), BadInput)


def test_plain_arrays_come_out_as_they_went_in(tmp_path: Path) -> None:
    _write_planetoid(tmp_path, test_index=[508, 506, 507])
    classes = unpickle(tmp_path / "ind.tiny.ally")
    assert classes.dtype == np.int32
    assert classes.sum(axis=1).tolist() == [1] * 506
