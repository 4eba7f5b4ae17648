"""siafu.embed: learning embeddings of a knowledge graph."""

import inspect
import json
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np
import torch

from siafu.base.errors import BadInput, Interrupted
from siafu.base.machine import peak_rss_bytes
from siafu.base.memory import budget_bytes, own_bytes, refuse_more_than_budget
from siafu.base.option import described, option, options_of
from siafu.base.version import __version__
from siafu.embedding.disk.disk_trainer import DiskTrainer
from siafu.embedding.embed_options import EmbedOptions, EmbedSession
from siafu.embedding.embedding_memory import disk_bytes, needed_bytes, on_disk
from siafu.embedding.embedding_run import KIND, EmbeddingRun, load_embeddings
from siafu.embedding.embedding_state import EmbeddingState
from siafu.embedding.embedding_trainer import EmbeddingTrainer
from siafu.embedding.embeddings import Embeddings
from siafu.embedding.evaluation import MRR, Evaluator
from siafu.graph.triples import Triples, read_triples
from siafu.report.files.large_tensors import load_tables, save_tables
from siafu.report.files.metrics import EpochMetrics
from siafu.report.files.run_directory import RunDirectory
from siafu.report.progress import Progress
from siafu.report.signals import StopRequest


@dataclass(frozen=True, kw_only=True)
class EmbedKeywords(EmbedSession, EmbedOptions):
    """The options of a run and of its session, and what only Python has."""

    progress: Progress | None = option(None, "Told of every epoch.")

    def options(self) -> EmbedOptions:
        return EmbedOptions(**self.as_json())


def embed(triples: Triples | str | Path, **keywords: Any) -> EmbeddingRun:
    """Learn a vector for every entity and every relation of `triples`: a store's path, or `Triples`.

    The result has the vectors of the best epoch: of the highest filtered MRR on the validation triples, of equals the earliest.
    Without validation triples it is the last.

    {keywords}

    With `out`, SIGINT and SIGTERM save a checkpoint at the end of the epoch and raise `Interrupted`.
    """
    asked = EmbedKeywords(**keywords)
    if isinstance(triples, str | Path):
        triples = read_triples(Path(triples))
    if not isinstance(triples, Triples):
        raise BadInput(
            f"embed takes a store's path or Triples, not {type(triples).__name__}: make one with 'siafu import'"
        )
    if asked.out is None and asked.resume:
        raise BadInput("nothing to resume: name the run's directory (out, on the command line --out)")
    options = _planned(triples, asked)
    if asked.out is None:
        return _Session(triples, options, asked, None).run()
    config = _config(triples, options)
    path = Path(asked.out)
    directory = (
        RunDirectory.resume(path, config)
        if asked.resume
        else RunDirectory.start(path, config, overwrite=asked.overwrite)
    )
    try:
        return _Session(triples, options, asked, directory).run()
    finally:
        directory.close()


def _planned(triples: Triples, asked: EmbedKeywords) -> EmbedOptions:
    """The options with partitions, if the vectors do not fit memory; refused, if nothing fits."""
    options = asked.options()
    before = RunDirectory(Path(asked.out)) if asked.out is not None else None
    if asked.resume and before is not None and before.exists and options.partitions is None:
        saved = before.config().get("training", {})
        options = replace(options, partitions=saved.get("partitions"), buffer=saved.get("buffer"))
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


class _Session:
    """One session of a run: from a checkpoint, if there is one, to the end or to a signal."""

    def __init__(
        self, triples: Triples, options: EmbedOptions, asked: EmbedKeywords, directory: RunDirectory | None
    ) -> None:
        self.triples, self.options, self.asked, self.directory = triples, options, asked, directory
        self.progress = asked.progress or Progress()
        self.trainer = self._trainer()
        self.evaluator = Evaluator(triples, options)
        self.history: list[EpochMetrics] = []
        self.state = EmbeddingState()
        self.best: dict[str, Any] | None = None  # the best epoch's vectors, where they are not the last's
        self._disk_before = (0, 0, 0)
        self._began = time.perf_counter()
        self._saved = time.monotonic()

    def _trainer(self) -> EmbeddingTrainer | DiskTrainer:
        if self.options.partitions is None:
            return EmbeddingTrainer(self.triples, self.options)
        own = gettempdir() if self.directory is None else self.directory.path
        return DiskTrainer(self.triples, self.options, Path(self.asked.scratch or own))

    def run(self) -> EmbeddingRun:
        if self.directory is None:
            with StopRequest() as request:
                self._train(request)
            return self._finish()
        self._restore(self.directory)
        if self.directory.finished and self._done and self.directory.model.is_file():
            embeddings = load_embeddings(self.directory, self.directory.config())
            return self._result(embeddings, self.directory.summary())
        self.directory.reopen()
        with StopRequest(self.progress.stopping) as request:
            self._train(request)
        return self._finish()

    @property
    def _done(self) -> bool:
        patience, state = self.options.patience, self.state
        early = patience is not None and state.best_epoch > 0 and state.epoch - state.best_epoch >= patience
        return state.epoch >= self.options.epochs or early

    def _train(self, request: StopRequest) -> None:
        while not self._done:
            self._run_epoch()
            if self.directory is not None and self.directory.stop_file.there:
                request.act_as(signal.SIGTERM)
            if request.signal is not None and not self._done:
                self._stop(request.signal)
            self._checkpoint_if_due()

    def _stop(self, number: signal.Signals) -> None:
        where = ""
        if self.directory is not None:
            self._checkpoint(self.directory)
            where = f" and saved in {self.directory.path}; to go on, train again with resume"
        raise Interrupted(f"stopped by {number.name} after epoch {self.state.epoch}{where}", number)

    def _run_epoch(self) -> None:
        began = time.perf_counter()
        losses = self.trainer.run_epoch()
        seconds = time.perf_counter() - began
        state = self.state
        state.epoch = self.trainer.epoch
        state.training_seconds += seconds
        state.staleness = max(state.staleness, losses.staleness)
        self._count_disk()
        mrr, evaluate_seconds = self._evaluate()
        metrics = EpochMetrics(
            epoch=state.epoch,
            train_loss=losses.mean,
            val_loss=None,
            train_accuracy=None,
            val_accuracy=mrr,
            test_accuracy=None,
            seconds=seconds,
            evaluate_seconds=evaluate_seconds,
            time=time.time(),
        )
        self.history.append(metrics)
        if self.directory is not None:
            self.directory.metrics.append(metrics)
        self.progress.epoch_ended(metrics)

    def _evaluate(self) -> tuple[float | None, float | None]:
        """The validation MRR and what it took, if it is due; the best epoch's vectors are kept."""
        state, last = self.state, self.state.epoch == self.options.epochs
        if len(self.triples.valid) == 0 or (state.epoch % self.options.evaluate_every and not last):
            return None, None
        began = time.perf_counter()
        mrr = self.evaluator.scores(self.trainer.embeddings, "valid").mrr
        if mrr > state.best_mrr or state.best_epoch == 0:
            state.best_epoch, state.best_mrr = state.epoch, mrr
            self.best = None if last else self._copy()
        return mrr, time.perf_counter() - began

    def _count_disk(self) -> None:
        if isinstance(self.trainer, DiskTrainer):
            state, (before, traffic) = self.state, (self._disk_before, self.trainer.buffer.scratch.traffic)
            state.swaps = before[0] + self.trainer.buffer.swaps
            state.bytes_read, state.bytes_written = (
                before[1] + traffic.bytes_read,
                before[2] + traffic.bytes_written,
            )

    def _copy(self) -> dict[str, Any] | None:
        """The vectors, kept as the best so far. Those on disk are not kept: the last epoch's are the result."""
        embeddings = self.trainer.embeddings
        if isinstance(self.trainer, DiskTrainer):
            return None
        return {"entities": embeddings.entities.copy(), "relations": embeddings.relations.copy()}

    def _checkpoint_if_due(self) -> None:
        if self.directory is None:
            return
        if self._done or time.monotonic() - self._saved >= self.asked.checkpoint_every:
            self._checkpoint(self.directory)

    def _checkpoint(self, directory: RunDirectory) -> None:
        directory.metrics.sync()
        arrays, steps = self.trainer.state()
        state = self.state
        state.steps = steps
        state.metrics_crc32 = directory.metrics.checksum(state.epoch)
        self._note_time()
        if self.best is not None:
            arrays = arrays | {f"best.{name}": table for name, table in self.best.items()}
        save_tables(directory.checkpoint, arrays, state.as_json())
        self._saved = time.monotonic()

    def _note_time(self) -> None:
        now = time.perf_counter()
        self.state.seconds += now - self._began
        self._began = now
        self.state.peak_rss_bytes = max(self.state.peak_rss_bytes, peak_rss_bytes())

    def _restore(self, directory: RunDirectory) -> None:
        if not directory.checkpoint.exists():
            directory.metrics.keep_until(0)
            return
        arrays, found = load_tables(directory.checkpoint)
        state = EmbeddingState.read(found, directory.checkpoint)
        history = directory.metrics.read_until(state.epoch)
        try:
            self.trainer.restore(state.epoch, arrays, state.steps or {})
        except (KeyError, ValueError) as error:
            raise BadInput(f"{directory.checkpoint} is of other embeddings: {error}") from error
        directory.metrics.check(state.epoch, state.metrics_crc32)
        directory.metrics.keep_until(state.epoch)
        best = {
            name.removeprefix("best."): table for name, table in arrays.items() if name.startswith("best.")
        }
        self.history, self.state, self.best = history, state, best or None
        self._disk_before = (state.swaps, state.bytes_read, state.bytes_written)

    def _finish(self) -> EmbeddingRun:
        if self.best is not None:
            tables = self.trainer.tables
            tables.entities.table[:] = self.best["entities"]
            tables.relations.table[:] = self.best["relations"]
            self.best = None
        embeddings = self.trainer.embeddings
        began = time.perf_counter()
        scores = {split: self.evaluator.scores_or_none(embeddings, split) for split in ("valid", "test")}
        self._note_time()
        summary = self._summary(scores, time.perf_counter() - began)
        vectors: dict[str, Any] = {"entities": embeddings.entities, "relations": embeddings.relations}
        if isinstance(self.trainer, DiskTrainer):
            vectors["entities"] = self.trainer.streamed()
        if self.directory is not None:
            save_tables(self.directory.model, vectors, {"files": self.directory.checksums(summary)})
            self.directory.write_summary(summary)
            if isinstance(self.trainer, DiskTrainer):
                embeddings = load_embeddings(self.directory, self.directory.config())
        elif isinstance(self.trainer, DiskTrainer):
            rows = np.concatenate(list(self.trainer.streamed().parts()))
            embeddings = Embeddings(embeddings.score, rows, embeddings.relations, embeddings.num_relations)
        if isinstance(self.trainer, DiskTrainer):
            self.trainer.buffer.close()
        return self._result(embeddings, summary)

    def _result(self, embeddings: Any, summary: dict[str, Any]) -> EmbeddingRun:
        config = _config(self.triples, self.options) if self.directory is None else self.directory.config()
        path = None if self.directory is None else self.directory.path
        return EmbeddingRun(embeddings, self.history, config, summary, self.triples, path)

    def _summary(self, scores: dict[str, Any], evaluated: float) -> dict[str, Any]:
        state, options = self.state, self.options
        best = state.epoch if options.partitions is not None else state.best_epoch or state.epoch
        done = state.epoch * len(self.triples.train)
        return {
            "dataset": self.triples.name,
            "model": options.score,
            "score": options.score,
            "dim": options.dim,
            "metric": MRR.name,
            "objective": MRR.as_json(),
            "seed": options.seed,
            "epochs": state.epoch,
            "best_epoch": best,
            "train_loss": self.history[best - 1].train_loss,
            **_told(scores["valid"], "val"),
            **_told(scores["test"], "test"),
            "ties": options.ties,
            "triples_per_second": done / max(state.training_seconds, 1e-9),
            "seconds_total": state.seconds,
            "seconds_per_epoch": state.training_seconds / max(1, state.epoch),
            "seconds_per_evaluation": evaluated,
            "peak_rss_bytes": state.peak_rss_bytes,
            "max_staleness_seen": state.staleness,
            "partitions": options.partitions,
            "buffer": options.buffer,
            "order": options.order,
            "swaps": state.swaps,
            "bytes_read": state.bytes_read,
            "bytes_written": state.bytes_written,
            "path": None if self.directory is None else str(self.directory.path),
        }


def _told(scores: Any, split: str) -> dict[str, Any]:
    names = ("mrr", "hits_at_1", "hits_at_3", "hits_at_10")
    return {f"{split}_{name}": None for name in names} if scores is None else scores.as_json(split)


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
