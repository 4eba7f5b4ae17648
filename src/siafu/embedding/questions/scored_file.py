"""Scores of the triples in a file."""

import csv
import io
from pathlib import Path
from typing import IO, Any

from siafu.base.errors import BadInput
from siafu.embedding.questions.answers import Answers
from siafu.graph.importing.readers.blocks import Ids, Names
from siafu.graph.triples.triple_sources import TripleOptions, open_triples


def write_scores(answers: Answers, source: Path, file: IO[bytes]) -> int:
    """Write head, relation, tail and score of each triple as CSV; how many there were."""
    if source.is_dir():
        raise BadInput(f"{source} is a folder: give one file of triples")
    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["head", "relation", "tail", "score"])
    count = 0
    for block in open_triples(source, TripleOptions()).blocks():
        heads, tails = _texts(block.head), _texts(block.tail)
        relations = (
            [answers.relations.name(0)] * len(heads) if block.relation is None else _texts(block.relation)
        )
        rows = list(zip(heads, relations, tails, strict=True))
        scores = answers.score(rows).tolist()
        writer.writerows([*row, f"{score:.6g}"] for row, score in zip(rows, scores, strict=True))
        count += len(rows)
    text.flush()
    text.detach()
    return count


def _texts(ids: Ids) -> list[Any]:
    if isinstance(ids, Names):
        return [ids.text(row).decode(errors="replace") for row in range(ids.size)]
    return list(ids.tolist())
