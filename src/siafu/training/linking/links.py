"""siafu.train_links: learning which vertices are linked, from a graph whose links are held out in part.

The encoder runs over the whole graph, as plain autograd with Siafu's kernels, in one process; the decoder scores pairs.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from siafu.base.errors import BadInput
from siafu.base.kept_memory import kept_memory
from siafu.base.unknown_keyword import refuse_unknown_keyword
from siafu.graph import Graph
from siafu.graph.foreign import graph_of
from siafu.graph.links import LinkSplit, Pairs, split_links
from siafu.graph.stores.fingerprint import fingerprint
from siafu.nn.calling import call_model
from siafu.nn.decoders import DECODERS
from siafu.nn.dropout import counted_dropout
from siafu.objective.link_metrics import link_metrics
from siafu.objective.metric import Metric
from siafu.program.record.record import mode as mode_of
from siafu.training.linking.best_epoch import mean_loss, repr_of_best, train_to_best
from siafu.training.linking.link_options import LinkOptions
from siafu.training.linking.row_optimizer import SplitOptimizer
from siafu.training.linking.saved_run import (
    FinishedRun,
    RunWriter,
    checksum_of,
    config_of,
    read_saved,
    run_writer,
)
from siafu.training.records.model_description import build_described

KIND = "links"
"""The `kind` in the config of a run of `siafu.train_links`."""


@dataclass(frozen=True, slots=True)
class LinkEpoch:
    """One epoch.

    epoch:     counted from 1
    loss:      mean over its steps, dropout on
    val, test: metrics by name, after its last step; None: it was not evaluated
    seconds:   with evaluate_seconds, those of the evaluation
    """

    epoch: int
    loss: float
    val: dict[str, float] | None
    test: dict[str, float] | None
    seconds: float
    evaluate_seconds: float = 0.0


@dataclass(frozen=True, eq=False)
class LinkRun:
    """A training on links, done. Model and decoder have the weights of the best epoch.

    path: the run's directory; None: it was not saved
    """

    model: nn.Module
    decoder: nn.Module
    split: LinkSplit
    options: LinkOptions
    history: list[LinkEpoch]
    best: LinkEpoch
    path: Path | None = None

    def __repr__(self) -> str:
        return repr_of_best(self, self.split.graph.name)

    @classmethod
    def load(
        cls,
        path: str | Path,
        graph: Graph,
        model: nn.Module | None = None,
        *,
        decoder: nn.Module | None = None,
        split: LinkSplit | None = None,
    ) -> "LinkRun":
        """A finished run from its directory, with the graph that it was trained on.

        Pass `model`, `decoder` and `split`, as they were made, if they are of your own making.
        """
        graph = graph_of(graph, "LinkRun.load")
        saved = read_saved(path, KIND, "siafu.train_links")
        asked = saved.config["training"]
        named = asked["decoder"] if asked["decoder"] in DECODERS else LinkOptions().decoder
        options = saved.options(LinkOptions, decoder=named)
        made = split or split_links(graph, val=options.val, test=options.test, seed=options.seed)
        if not saved.is_of(**_about(made), fingerprint=fingerprint(made.graph)):
            raise BadInput(
                f"{path} was trained on another graph, or on other links of it: give that graph, and split=… if you made the split"
            )
        if model is None:
            ways = "siafu.LinkRun.load(path, graph, model)"
            model = build_described(saved.config["model"], saved.path, ways)
        saved.put_into(model, "model")
        if decoder is None:
            decoder = _decoder_of(saved, _encoded(model, made.graph).shape[1])
        saved.put_into(decoder, "decoder")
        history = [LinkEpoch(**each) for each in saved.epochs]
        return cls(model, decoder, made, options, history, history[saved.best - 1], saved.path)

    def rows(self) -> Tensor:
        """[V, C]: the encoder's rows over the training links."""
        return _encoded(self.model, self.split.graph)

    def scores(self, pairs: Any) -> Tensor:
        """[n]: how likely each of the pairs [2, n] is a link."""
        given = np.asarray(pairs)
        fits = given.ndim == 2 and given.shape[0] == 2 and given.dtype.kind in "iu"
        if not fits:
            raise BadInput("pairs are no [2, n] vertices of the graph: give both ends of each")
        most = self.split.graph.num_vertices - 1
        if given.size and not 0 <= given.min() <= given.max() <= most:
            wrong = given.min() if given.min() < 0 else given.max()
            raise BadInput(f"pairs has vertex {wrong}: vertices go from 0 to {most}")
        with mode_of(self.decoder, training=False), torch.no_grad():
            return torch.sigmoid(_scored(self.decoder, self.rows(), given.astype(np.int64)))

    def summary(self) -> dict[str, Any]:
        """Results as JSON has them; metrics are those of the best epoch."""
        assert self.best.val is not None and self.best.test is not None
        options = asdict(self.options)
        return {
            "dataset": self.split.graph.name,
            "model": type(self.model).__name__,
            "decoder": _name_of(self.decoder),
            **{name: options[name] for name in ("metric", "seed", "batch", "hide")},
            "links": {name: getattr(self.split, name).shape[1] for name in ("train", "val", "test")},
            "epochs": len(self.history),
            "best_epoch": self.best.epoch,
            "train_loss": self.best.loss,
            **{f"val_{name}": value for name, value in self.best.val.items()},
            **{f"test_{name}": value for name, value in self.best.test.items()},
            "seconds_total": sum(each.seconds for each in self.history),
        }


def train_links(
    graph: Graph,
    model: nn.Module,
    *,
    split: LinkSplit | None = None,
    progress: Callable[[LinkEpoch], Any] = lambda epoch: None,
    decoder: str | nn.Module = "dot",
    out: str | Path | None = None,
    overwrite: bool = False,
    **options: Any,
) -> LinkRun:
    """Train `model` and a decoder to tell pairs of vertices with a link from pairs without one; both end as in the best epoch.

    The model gives a row for each vertex. It never sees a held-out link, in either direction: it is run over `split.graph`. Every
    step has as many pairs without a link as with one, drawn anew; the loss is the binary cross-entropy.

    split:    made before; None: by the options val, test and seed
    progress: called with every epoch
    decoder:  dot, mlp or distmult, or a module from rows of both ends [n, C] to scores [n]
    out:      the run's directory, for `siafu.LinkRun.load`; None: it is not saved
    overwrite: replace the run that is there
    options:  fields of `siafu.training.linking.link_options.LinkOptions`
    """
    graph = graph_of(graph, "train_links")
    named = decoder if isinstance(decoder, str) else "dot"
    refuse_unknown_keyword(options, LinkOptions, "siafu.train_links")
    asked = LinkOptions(decoder=named, **options)
    if asked.hide and asked.batch is None:
        raise BadInput("hide leaves a batch's links out, and all links are one batch: give batch, too")
    made = split or split_links(graph, val=asked.val, test=asked.test, seed=asked.seed)
    training = _LinkTraining(model, decoder, made, asked)
    with run_writer(out, training.config(), asked.metric, overwrite=overwrite) as writer:
        return training.run(progress, writer)


class _LinkTraining:
    def __init__(
        self, model: nn.Module, decoder: str | nn.Module, split: LinkSplit, options: LinkOptions
    ) -> None:
        self._model, self._split, self._options = model, split, options
        width = _encoded(model, split.graph).shape[1]
        if isinstance(decoder, str):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(options.seed)
                decoder = DECODERS[decoder](width)
        self._decoder = decoder.to(next(model.parameters()).dtype)
        self._both = nn.ModuleList([model, self._decoder])
        self._optimizer = SplitOptimizer(
            model,
            split.graph,
            self._both,
            options.row_optimizer,
            lr=options.lr,
            weight_decay=options.weight_decay,
        )

    def config(self) -> dict[str, Any]:
        """Settings, as the run's directory keeps them."""
        asked = self._options
        metric = Metric(asked.metric, is_share=asked.metric.startswith("hits"))
        options = asdict(asked) | {"decoder": _name_of(self._decoder)}
        return config_of(KIND, self._split.graph, self._model, metric, options, **_about(self._split))

    def run(self, progress: Callable[[LinkEpoch], Any], writer: RunWriter) -> LinkRun:
        def ended(epoch: LinkEpoch) -> None:
            writer.epoch_ended(epoch)
            progress(epoch)

        with kept_memory():  # every step makes tables of all vertices
            history, best = train_to_best(self._both, self._options, self._epoch, self._options.metric, ended)
        assert best is not None, "the last epoch is always evaluated"
        run = LinkRun(self._model, self._decoder, self._split, self._options, history, best, writer.path)
        writer.finish({"model": run.model, "decoder": run.decoder}, history, best, run.summary())
        return run

    def _epoch(self, number: int, evaluated: bool) -> LinkEpoch:
        began = time.perf_counter()
        losses = [self._step(*batch) for batch in self._batches(number)]
        trained = time.perf_counter()
        found = self._evaluated() if evaluated else {"val": None, "test": None}
        mean = mean_loss(losses, number + 1, self._options.lr)
        ended = time.perf_counter()
        return LinkEpoch(number + 1, mean, **found, seconds=ended - began, evaluate_seconds=ended - trained)

    def _batches(self, epoch: int) -> Iterator[tuple[Graph, Pairs, Pairs, int]]:
        """For each step: the graph to gather over, pairs with and without a link, and the step's number."""
        split, size = self._split, self._options.batch
        count = split.train.shape[1]
        if size is None or size >= count:
            yield split.graph, split.train, split.training_negatives(count, epoch), epoch
            return
        order = split.epoch_order(epoch)
        steps = range(0, count, size)
        for place, first in enumerate(steps):
            number, picked = epoch * len(steps) + place, order[first : first + size]
            links = split.train[:, picked]
            graph = split.graph_without(picked) if self._options.hide else split.graph
            yield graph, links, split.training_negatives(len(picked), number), number

    def _step(self, graph: Graph, links: Pairs, others: Pairs, number: int) -> float:
        self._both.train()
        self._optimizer.zero_grad()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed((self._options.seed * 1_000_003 + number) % 2**63)
            with counted_dropout(self._options.seed, number):
                rows = call_model(self._model, graph)
            scores = _scored(self._decoder, rows, np.concatenate([links, others], 1))
        wanted = torch.zeros_like(scores)
        wanted[: links.shape[1]] = 1
        loss = F.binary_cross_entropy_with_logits(scores, wanted)
        loss.backward()
        self._optimizer.step()
        return loss.item()

    def _evaluated(self) -> dict[str, Any]:
        split, rows = self._split, _encoded(self._model, self._split.graph)
        with mode_of(self._decoder, training=False), torch.no_grad():
            return {
                name: link_metrics(
                    _scored(self._decoder, rows, getattr(split, name)),
                    _scored(self._decoder, rows, getattr(split, f"{name}_negatives")),
                )
                for name in ("val", "test")
            }


def _about(split: LinkSplit) -> dict[str, str]:
    """A checksum of the held-out links, and of the pairs without a link to tell them from."""
    return {"held_out": checksum_of(split.val, split.test, split.val_negatives, split.test_negatives)}


def _name_of(decoder: nn.Module) -> str:
    """A decoder's name as an option; of one of a user's making, its class."""
    return next((name for name, kind in DECODERS.items() if type(decoder) is kind), type(decoder).__name__)


def _decoder_of(saved: FinishedRun, width: int) -> nn.Module:
    name = saved.config["training"]["decoder"]
    if name not in DECODERS:
        raise BadInput(f"{saved.path} was trained with a decoder of your own, {name}: give it (decoder=…)")
    return DECODERS[name](width)


def _encoded(model: nn.Module, graph: Graph) -> Tensor:
    with mode_of(model, training=False), torch.no_grad():
        rows = call_model(model, graph)
    if rows.ndim != 2 or len(rows) != graph.num_vertices:
        raise BadInput(
            f"the model gives {list(rows.shape)}: let it give a row for each of the {graph.num_vertices} vertices"
        )
    return rows


def _scored(decoder: nn.Module, rows: Tensor, pairs: Pairs) -> Tensor:
    ends = torch.from_numpy(pairs)
    scores: Tensor = decoder(rows.index_select(0, ends[0]), rows.index_select(0, ends[1]))
    if scores.shape != (pairs.shape[1],):
        raise BadInput(
            f"the decoder gives {list(scores.shape)} for {pairs.shape[1]} pairs: let it give a score for each"
        )
    return scores
