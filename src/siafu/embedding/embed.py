"""siafu.embed: learning embeddings of a knowledge graph."""

import inspect
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from siafu.base.errors import BadInput
from siafu.base.hardware.memory import budget_bytes, own_bytes, refuse_more_than_budget
from siafu.base.option import described, options_of
from siafu.base.unknown_keyword import refuse_unknown_keyword
from siafu.base.version import __version__
from siafu.embedding.embed_keywords import EmbedKeywords
from siafu.embedding.embed_options import EmbedOptions
from siafu.embedding.embedding_memory import disk_bytes, needed_bytes, on_disk
from siafu.embedding.embedding_run import KIND, EmbeddingRun
from siafu.embedding.embedding_session import EmbeddingSession
from siafu.embedding.evaluation import MRR
from siafu.embedding.servers.server_plan import with_partitions
from siafu.graph.graph import Graph
from siafu.graph.triples import Triples, triples_at, triples_of
from siafu.report.files.run_directory import RunDirectory


def embed(triples: Triples | Graph | str | Path, **keywords: Any) -> EmbeddingRun:
    """Learn a vector for every entity and every relation of `triples`: `Triples`, or a store's path.

    A plain graph will do too, by its name or store's path, or as a `Graph`: its edges are facts of one relation, or of their types. One
    twentieth of its links validates, and another tests.

    The result has the vectors of the best epoch: of the highest filtered MRR on the validation triples, of equals the earliest.
    Without validation triples it is the last.

    {keywords}

    With `out`, SIGINT and SIGTERM save a checkpoint, within an epoch, too, and raise `Interrupted`.
    """
    refuse_unknown_keyword(keywords, EmbedKeywords, "siafu.embed")
    asked = EmbedKeywords(**keywords)
    if isinstance(triples, str | Path):
        triples = triples_at(triples)
    elif isinstance(triples, Graph):
        triples = triples_of(triples)
    if not isinstance(triples, Triples):
        raise BadInput(
            f"embed takes a store's path, Triples or a Graph, not {type(triples).__name__}: make one with 'siafu import'"
        )
    if asked.out is None and asked.resume:
        raise BadInput("nothing to resume: name the run's directory (out, on the command line --out)")
    options = _planned(triples, asked)
    config = _config(triples, replace(options, batch=asked.batch))
    if asked.out is None:
        return EmbeddingSession(triples, options, asked, config, None).run()
    path = Path(asked.out)
    directory = (
        RunDirectory.resume(path, config)
        if asked.resume
        else RunDirectory.start(path, config, overwrite=asked.overwrite)
    )
    try:
        return EmbeddingSession(triples, options, asked, config, directory).run()
    finally:
        directory.close()


def _planned(triples: Triples, asked: EmbedKeywords) -> EmbedOptions:
    """The options with partitions, if the vectors do not fit memory; refused, if nothing fits."""
    options = asked.options().for_triples(len(triples.train))
    before = RunDirectory(Path(asked.out)) if asked.out is not None else None
    if asked.resume and before is not None and before.exists and options.partitions is None:
        saved = before.config().get("training", {})
        options = replace(options, partitions=saved.get("partitions"), buffer=saved.get("buffer"))
    if options.servers > 1:
        return _of_servers(triples, with_partitions(options), asked)
    if asked.cluster is not None:
        raise BadInput(
            "cluster is for several servers: say how many (servers, on the command line --servers)"
        )
    if options.partitions is not None and options.buffer is None:
        options = replace(options, buffer=max(2, options.partitions // 4))
    taken = own_bytes()
    needed = needed_bytes(triples, options) if options.partitions is None else disk_bytes(triples, options)
    budget = budget_bytes(asked.memory, taken)
    if options.partitions is None and budget is not None and taken + needed > budget:
        chosen = on_disk(triples, options, budget - taken)
        if chosen is not None:
            return chosen
    refuse_more_than_budget(
        taken + needed,
        "training these embeddings",
        "choose a smaller dim, or more partitions",
        memory=asked.memory,
        taken=taken,
    )
    return options


def _of_servers(triples: Triples, options: EmbedOptions, asked: EmbedKeywords) -> EmbedOptions:
    """The options; refused, if this machine has no memory for so many processes. A cluster's machines speak for themselves."""
    if asked.cluster is None:
        taken = own_bytes()
        refuse_more_than_budget(
            taken + options.servers * (taken + disk_bytes(triples, options)),
            f"{options.servers} servers on this machine",
            "ask for more partitions, fewer servers, or a cluster",
            memory=asked.memory,
            taken=taken,
        )
    return options


def _config(triples: Triples, options: EmbedOptions) -> dict[str, Any]:
    config = {
        "siafu": __version__,
        "torch": torch.__version__,
        "kind": KIND,
        "dataset": triples.source,
        "graph": {
            "name": triples.name,
            "entities": triples.num_entities,
            "relations": triples.num_relations,
            "triples": [len(triples.train), len(triples.valid), len(triples.test)],
            "metric": MRR.name,
            "fingerprint": f"{triples.fingerprint:08x}",
        },
        "model": {"name": options.score, "config": {"dim": options.dim}},
        "objective": MRR.as_json(),
        "training": options.as_json(),
    }
    plain: dict[str, Any] = json.loads(json.dumps(config))
    return plain


def _describe_keywords() -> None:
    """Put the options into the docstring and the signature, where notebooks and the reference look."""
    own, more = inspect.signature(embed), inspect.signature(EmbedKeywords)
    first = own.parameters["triples"]
    embed.__signature__ = own.replace(parameters=[first, *more.parameters.values()])  # type: ignore[attr-defined]
    told = described(options_of(EmbedKeywords).values()).replace("\n", "\n    ")
    embed.__doc__ = (embed.__doc__ or "").replace("{keywords}", told)


_describe_keywords()
