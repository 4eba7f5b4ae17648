"""EmbeddingSession: one session of a run, from its checkpoint to its end."""

import signal
import time
from dataclasses import replace
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np

from siafu.base.compiling import working_clock
from siafu.base.errors import BadInput, Interrupted
from siafu.base.hardware.machine import peak_rss_bytes
from siafu.embedding.disk.disk_trainer import DiskTrainer
from siafu.embedding.disk.partitioned_trainer import PartitionedTrainer
from siafu.embedding.embed_keywords import EmbedKeywords
from siafu.embedding.embed_options import EmbedOptions
from siafu.embedding.embedding_run import EmbeddingRun, load_embeddings
from siafu.embedding.embedding_state import EmbeddingState
from siafu.embedding.embedding_trainer import EmbeddingTrainer
from siafu.embedding.embeddings import BriefEmbeddings, Embeddings, widened_stream
from siafu.embedding.evaluation import MRR, Evaluator
from siafu.embedding.servers.start import servers_trainer
from siafu.embedding.steps.epoch import EpochLosses
from siafu.embedding.steps.float_bits import BRIEF, as_kind
from siafu.graph.triples import Triples
from siafu.report.files.large_tensors import load_tables, save_tables
from siafu.report.files.metrics import EpochMetrics
from siafu.report.files.run_directory import RunDirectory
from siafu.report.progress import Progress
from siafu.report.signals import StopRequest

_REST = 20  # times as long as a checkpoint takes pass before the next within an epoch


class EmbeddingSession:
    """One session of a run: from a checkpoint, if there is one, to the end or to a signal."""

    def __init__(
        self,
        triples: Triples,
        options: EmbedOptions,
        asked: EmbedKeywords,
        config: dict[str, Any],
        directory: RunDirectory | None,
    ) -> None:
        self.triples, self.options, self.asked, self.directory = triples, options, asked, directory
        self.config = config if directory is None else directory.config()
        self.progress = asked.progress or Progress()
        self.trainer = self._trainer()
        self.evaluator = Evaluator(triples, options)
        self.history: list[EpochMetrics] = []
        self.state = EmbeddingState()
        self.best: dict[str, Any] | None = None  # the best epoch's vectors, where they are not the last's
        self._disk_before = EmbeddingState()
        self._began = time.perf_counter()
        self._saved = time.monotonic()
        self._saving = 0.0  # seconds that the last checkpoint took

    def _trainer(self) -> EmbeddingTrainer | PartitionedTrainer:
        if self.options.servers > 1:
            return servers_trainer(self.triples, self.options, self.asked)
        if self.options.partitions is None:
            return EmbeddingTrainer(self.triples, self.options)
        own = gettempdir() if self.directory is None else self.directory.path
        return DiskTrainer(self.triples, self.options, Path(self.asked.scratch or own))

    def run(self) -> EmbeddingRun:
        try:
            return self._run()
        finally:
            if isinstance(self.trainer, PartitionedTrainer):
                self.trainer.close()

    def _run(self) -> EmbeddingRun:
        if self.directory is None:
            with StopRequest() as request:
                self._train(request)
            return self._finish()
        self._restore(self.directory)
        if self.directory.finished and self._done and self.directory.model.is_file():
            embeddings = load_embeddings(self.directory, self.config)
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
            self._run_epoch(request)
            if self._stop_asked(request) and not self._done:
                self._stop(request, f"after epoch {self.state.epoch}")
            self._checkpoint_if_due()

    def _stop_asked(self, request: StopRequest) -> bool:
        if self.directory is not None and self.directory.stop_file.there:
            request.act_as(signal.SIGTERM)
        return request.signal is not None

    def _stop(self, request: StopRequest, when: str) -> None:
        assert request.signal is not None
        where = ""
        if self.directory is not None:
            self._checkpoint(self.directory)
            where = f" and saved in {self.directory.path}; to go on, train again with resume"
        raise Interrupted(f"stopped by {request.signal.name} {when}{where}", request.signal)

    def _run_epoch(self, request: StopRequest) -> None:
        losses = self._trained_epoch(request)
        state = self.state
        state.epoch = self.trainer.epoch
        state.staleness = max(state.staleness, losses.staleness)
        seconds, state.part_seconds = state.part_seconds, 0.0
        state.training_seconds += seconds
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

    def _trained_epoch(self, request: StopRequest) -> EpochLosses:
        """One epoch, with checkpoints within it where they are due."""

        def rests() -> bool:
            return self._stop_asked(request) or self._is_due(within=True)

        while True:
            began = working_clock()
            losses = self.trainer.run_epoch(rests)
            self.state.part_seconds += working_clock() - began
            if losses is not None:
                return losses
            if self._stop_asked(request):
                self._stop(request, f"in epoch {self.state.epoch + 1}")
            if self.directory is not None:
                self._checkpoint(self.directory)

    def _evaluate(self) -> tuple[float | None, float | None]:
        """The validation MRR and what it took, if it is due; the best epoch's vectors are kept."""
        state, last = self.state, self.state.epoch == self.options.epochs
        if len(self.triples.valid) == 0 or (state.epoch % self.options.evaluate_every and not last):
            return None, None
        began = working_clock()
        mrr = self.evaluator.scores(self.trainer.embeddings, "valid").mrr
        if mrr > state.best_mrr or state.best_epoch == 0:
            state.best_epoch, state.best_mrr = state.epoch, mrr
            self.best = None if last else self._copy()
        return mrr, working_clock() - began

    def _count_disk(self) -> None:
        if isinstance(self.trainer, PartitionedTrainer):
            state, before, now = self.state, self._disk_before, self.trainer.counts()
            state.swaps = before.swaps + now.swaps
            state.bytes_read = before.bytes_read + now.bytes_read
            state.bytes_written = before.bytes_written + now.bytes_written
            state.disk_seconds = before.disk_seconds + now.moving_seconds
            state.disk_waited_seconds = before.disk_waited_seconds + now.waited_seconds

    def _copy(self) -> dict[str, Any] | None:
        """The vectors, kept as the best so far. Those on disk are not kept: the last epoch's are the result."""
        embeddings = self.trainer.embeddings
        if isinstance(self.trainer, PartitionedTrainer):
            return None
        return {"entities": embeddings.entities.copy(), "relations": embeddings.relations.copy()}

    def _checkpoint_if_due(self) -> None:
        if self.directory is not None and (self._done or self._is_due(within=False)):
            self._checkpoint(self.directory)

    def _is_due(self, *, within: bool) -> bool:
        """Whether a checkpoint is; within: an epoch, where it must not take more than a small share of the time."""
        every, since = self.asked.checkpoint_every, time.monotonic() - self._saved
        if self.directory is None or (within and every == 0):
            return False
        return since >= (max(every, _REST * self._saving) if within else every)

    def _checkpoint(self, directory: RunDirectory) -> None:
        began = time.monotonic()
        directory.metrics.sync()
        self._count_disk()
        arrays, steps = self.trainer.state()
        state, part = self.state, self.trainer.losses
        state.steps, state.position = steps, self.trainer.position
        state.part_loss, state.part_triples, state.part_batches = part.total, part.triples, part.batches
        state.staleness = max(state.staleness, part.staleness)
        state.metrics_crc32 = directory.metrics.checksum(state.epoch)
        self._note_time()
        if self.best is not None:
            best = {
                name: widened_stream(table) if table.dtype == BRIEF else table
                for name, table in self.best.items()
            }
            arrays = arrays | {f"best.{name}": table for name, table in best.items()}
        save_tables(directory.checkpoint, arrays, state.as_json())
        self._saved = time.monotonic()
        self._saving = self._saved - began

    def _note_time(self) -> None:
        now = time.perf_counter()
        self.state.seconds += now - self._began
        self._began = now
        self.state.peak_rss_bytes = max(self.state.peak_rss_bytes, peak_rss_bytes())

    def _restore(self, directory: RunDirectory) -> None:
        for begun in directory.path.glob(f".{directory.checkpoint.name}.*.partial"):
            begun.unlink()  # of a session that was killed while it wrote; nobody else writes here now
        if not directory.checkpoint.exists():
            directory.metrics.keep_until(0)
            return
        arrays, found = load_tables(directory.checkpoint)
        state = EmbeddingState.read(found, directory.checkpoint)
        history = directory.metrics.read_until(state.epoch)
        try:
            self.trainer.restore(arrays, state.steps or {})
        except (KeyError, ValueError) as error:
            raise BadInput(f"{directory.checkpoint} is of other embeddings: {error}") from error
        self.trainer.epoch, self.trainer.position = state.epoch, state.position
        self.trainer.losses = EpochLosses(state.part_loss, state.part_triples, state.part_batches)
        directory.metrics.check(state.epoch, state.metrics_crc32)
        directory.metrics.keep_until(state.epoch)
        best = {
            name.removeprefix("best."): table for name, table in arrays.items() if name.startswith("best.")
        }
        self.history, self.state, self.best = history, state, best or None
        if self.best is None and 0 < state.best_epoch == state.epoch:
            self.best = self._copy()  # the last epoch was the best: later ones need not be
        self._disk_before = replace(state)

    def _finish(self) -> EmbeddingRun:
        if self.best is not None and isinstance(self.trainer, EmbeddingTrainer):
            tables = self.trainer.tables
            tables.entities.table[:] = as_kind(self.best["entities"], tables.entities.table.dtype)
            tables.relations.table[:] = self.best["relations"]
            self.best = None
        embeddings = self.trainer.embeddings
        began = time.perf_counter()
        scores = {split: self.evaluator.scores_or_none(embeddings, split) for split in ("valid", "test")}
        self._note_time()
        summary = self._summary(scores, time.perf_counter() - began)
        vectors: dict[str, Any] = {"entities": embeddings.entities, "relations": embeddings.relations}
        if isinstance(self.trainer, PartitionedTrainer):
            vectors["entities"] = self.trainer.streamed()
        elif isinstance(embeddings, BriefEmbeddings):
            vectors["entities"] = widened_stream(embeddings.entities)
        if self.directory is not None:
            save_tables(self.directory.model, vectors, {"files": self.directory.checksums(summary)})
            self.directory.write_summary(summary)
            if isinstance(self.trainer, PartitionedTrainer):
                embeddings = load_embeddings(self.directory, self.config)
        elif isinstance(self.trainer, PartitionedTrainer):
            rows = np.concatenate(list(self.trainer.streamed().parts()))
            embeddings = Embeddings(embeddings.score, rows, embeddings.relations, embeddings.num_relations)
        if isinstance(embeddings, BriefEmbeddings):
            embeddings = embeddings.whole()
        return self._result(embeddings, summary)

    def _result(self, embeddings: Any, summary: dict[str, Any]) -> EmbeddingRun:
        path = None if self.directory is None else self.directory.path
        return EmbeddingRun(embeddings, self.history, self.config, summary, self.triples, path)

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
            "candidates": options.candidates,
            "triples_per_second": done / max(state.training_seconds, 1e-9),
            "seconds_total": state.seconds,
            "seconds_per_epoch": state.training_seconds / max(1, state.epoch),
            "seconds_per_evaluation": evaluated,
            "peak_rss_bytes": state.peak_rss_bytes,
            "max_staleness_seen": state.staleness,
            "servers": options.servers,
            "partitions": options.partitions,
            "buffer": options.buffer,
            "order": options.order,
            "swaps": state.swaps,
            "bytes_read": state.bytes_read,
            "bytes_written": state.bytes_written,
            "disk_seconds": state.disk_seconds,
            "disk_waited_seconds": state.disk_waited_seconds,
            "path": None if self.directory is None else str(self.directory.path),
        }


def _told(scores: Any, split: str) -> dict[str, Any]:
    names = ("mrr", "hits_at_1", "hits_at_3", "hits_at_10")
    return {f"{split}_{name}": None for name in names} if scores is None else scores.as_json(split)
