"""Vectors in files that other programs read."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from siafu.base.errors import BadInput
from siafu.base.storage.files import replacing
from siafu.embedding.questions.answers import Answers, NameTable

_ROWS = 1 << 16


def export_vectors(answers: Answers, path: Path, *, relations: bool) -> None:
    """Write the vectors of entities or relations, whole or not at all; the file's ending says how."""
    names = answers.relations if relations else answers.entities
    vectors = answers.embeddings.relations if relations else answers.embeddings.entities
    writers = {".parquet": _parquet, ".npy": _npy, ".txt": _word2vec, ".vec": _word2vec}
    write = writers.get(path.suffix.lower())
    if write is None:
        raise BadInput(
            f"cannot tell what to write to {path}: name a file that ends in .parquet, .npy, .txt or .vec"
        )
    write(path, names, vectors)


def _listed(names: NameTable, count: int) -> NDArray[Any]:
    """Names of all rows; the second half of reciprocal relations is named after the first."""
    own = np.arange(names.count) if names.names is None else names.names
    if count == len(own):
        return own
    text = [name.decode() if isinstance(name, bytes) else str(name) for name in own.tolist()]
    return np.array(
        [*(each.encode() for each in text), *(f"{each} (inverse)".encode() for each in text)], "S"
    )


def _blocks(names: NameTable, vectors: NDArray[Any]) -> Iterator[tuple[list[Any], NDArray[Any]]]:
    listed = _listed(names, len(vectors))
    for first in range(0, len(vectors), _ROWS):
        part = listed[first : first + _ROWS].tolist()
        text = [name.decode(errors="replace") if isinstance(name, bytes) else name for name in part]
        yield text, vectors[first : first + _ROWS]


def _npy(path: Path, names: NameTable, vectors: NDArray[Any]) -> None:
    beside = path.with_name(f"{path.stem}.ids.npy")
    with replacing(beside) as file:
        np.save(file, _listed(names, len(vectors)), allow_pickle=False)
    with replacing(path) as file:
        np.save(file, vectors, allow_pickle=False)


def _word2vec(path: Path, names: NameTable, vectors: NDArray[Any]) -> None:
    with replacing(path) as file:
        file.write(f"{len(vectors)} {vectors.shape[1]}\n".encode())
        for text, rows in _blocks(names, vectors):
            for name, row in zip(text, rows.tolist(), strict=True):
                word = "_".join(str(name).split()) or "_"
                file.write(f"{word} {' '.join(f'{value:.9g}' for value in row)}\n".encode())


def _parquet(path: Path, names: NameTable, vectors: NDArray[Any]) -> None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise BadInput(
            "writing Parquet needs pyarrow: pip install 'siafu[parquet]', or write an .npy file"
        ) from error
    vector = pyarrow.list_(pyarrow.float32(), vectors.shape[1])
    text = _listed(names, len(vectors)).dtype.kind == "S"
    schema = pyarrow.schema([("id", pyarrow.string() if text else pyarrow.int64()), ("vector", vector)])
    with replacing(path) as file, parquet.ParquetWriter(file, schema) as writer:
        for ids, rows in _blocks(names, vectors):
            values = pyarrow.FixedSizeListArray.from_arrays(
                pyarrow.array(np.ascontiguousarray(rows).reshape(-1)), vectors.shape[1]
            )
            writer.write_table(
                pyarrow.table([pyarrow.array(ids, schema.field("id").type), values], schema=schema)
            )
