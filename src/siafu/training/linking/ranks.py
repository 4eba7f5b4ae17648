"""siafu.train_ranks: learning which items to show a user, from pairs that are known.

The model runs over the whole graph of users and items, as plain autograd with Siafu's kernels, in one process.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from siafu.base.errors import BadInput
from siafu.base.kept_memory import kept_memory
from siafu.base.unknown_keyword import refuse_unknown_keyword
from siafu.graph.interactions import Interactions, Pairs
from siafu.nn.calling import call_model
from siafu.nn.layers.light_gcn import LearntRows, LightGCN
from siafu.objective.metric import Metric
from siafu.objective.rank_metrics import hits_of, ndcg_at, recall_at
from siafu.program.record.record import mode as mode_of
from siafu.training.linking.best_epoch import mean_loss, repr_of_best, train_to_best
from siafu.training.linking.rank_options import RankOptions
from siafu.training.linking.row_optimizer import SplitOptimizer
from siafu.training.linking.saved_run import RunWriter, checksum_of, config_of, read_saved, run_writer

KIND = "ranks"
"""The `kind` in the config of a run of `siafu.train_ranks`."""

_SCORES_AT_ONCE = 1 << 24  # of users with all items

Measures = dict[str, float]


@dataclass(frozen=True, slots=True)
class RankEpoch:
    """One epoch.

    epoch:     counted from 1
    loss:      mean over its steps, the penalty included
    val, test: recall and ndcg by name, after its last step; None: not evaluated, or there are no such pairs
    seconds:   with evaluate_seconds, those of the evaluation
    """

    epoch: int
    loss: float
    val: Measures | None
    test: Measures | None
    seconds: float
    evaluate_seconds: float = 0.0


@dataclass(frozen=True, eq=False)
class RankRun:
    """A training on ranks, done. The model has the weights of the best epoch: by validation pairs, else the last.

    path: the run's directory; None: it was not saved
    """

    model: nn.Module
    interactions: Interactions
    options: RankOptions
    history: list[RankEpoch]
    best: RankEpoch
    path: Path | None = None

    def __repr__(self) -> str:
        return repr_of_best(self, self.interactions.name)

    @classmethod
    def load(cls, path: str | Path, interactions: Interactions, model: nn.Module | None = None) -> "RankRun":
        """A finished run from its directory, with the pairs that it was trained on.

        Pass `model`, as it was built, if it is not the LightGCN that `train_ranks` builds.
        """
        _refuse_other_than_interactions(interactions, "RankRun.load")
        saved = read_saved(path, KIND, "siafu.train_ranks")
        options = saved.options(RankOptions)
        if not saved.is_of(**_about(interactions)):
            raise BadInput(f"{path} was trained on other pairs, users or items: give those")
        if model is None:
            if not saved.config.get("light_gcn"):
                name = saved.config["model"]["name"]
                raise BadInput(
                    f"{path} was trained with {name}: use siafu.RankRun.load(path, interactions, model)"
                )
            model = LightGCN(interactions.graph.num_vertices, options.channels, options.layers)
        saved.put_into(model, "model")
        history = [RankEpoch(**each) for each in saved.epochs]
        return cls(model, interactions, options, history, history[saved.best - 1], saved.path)

    def rows(self) -> tuple[Tensor, Tensor]:
        """Rows of users and rows of items; the score of a pair is their product."""
        rows = _encoded(self.model, self.interactions)
        return rows[: self.interactions.num_users], rows[self.interactions.num_users :]

    def best_items(self, users: Any, k: int | None = None) -> NDArray[Any]:
        """[n, k] the items of highest score for each user, best first, without those that they have in training.

        users: their names, or their numbers. Where items have names, the answer is names, else numbers
        """
        given = self.interactions.users_numbered(users)
        rows = _encoded(self.model, self.interactions)
        found = _best(rows, given, self.interactions, [self.interactions.train], k or self.options.k)
        best = np.concatenate([each for _, each in found] or [np.zeros((0, k or self.options.k), np.int64)])
        names = self.interactions.item_names
        return best if names is None else names[best]

    def summary(self) -> dict[str, Any]:
        """Results as JSON has them; metrics are those of the best epoch."""
        data = self.interactions
        return {
            "dataset": data.name,
            "model": type(self.model).__name__,
            **asdict(self.options),
            "users": data.num_users,
            "items": data.num_items,
            "pairs": {part: getattr(data, part).shape[1] for part in ("train", "val", "test")},
            "epochs": len(self.history),
            "best_epoch": self.best.epoch,
            "train_loss": self.best.loss,
            **{f"val_{name}": value for name, value in (self.best.val or {}).items()},
            **{f"test_{name}": value for name, value in (self.best.test or {}).items()},
            "seconds_total": sum(each.seconds for each in self.history),
        }


def train_ranks(
    interactions: Interactions,
    model: nn.Module | None = None,
    *,
    progress: Callable[[RankEpoch], Any] = lambda epoch: None,
    out: str | Path | None = None,
    overwrite: bool = False,
    **options: Any,
) -> RankRun:
    """Train `model` to score the items that a user has above those that the user has not (BPR, Rendle et al. 2009).

    The loss of a step is the mean of -ln σ(z_u·z_i - z_u·z_j) over its users u, items i that u has and items j that u has not, each
    j drawn uniformly. Held-out items are ranked among all items but those that the user has in training.

    model:    gives a row for each user, then for each item, of `interactions.graph`; None: LightGCN
    progress: called with every epoch
    out:      the run's directory, for `siafu.RankRun.load`; None: it is not saved
    overwrite: replace the run that is there
    options:  fields of `siafu.training.linking.rank_options.RankOptions`
    """
    _refuse_other_than_interactions(interactions, "train_ranks")
    refuse_unknown_keyword(options, RankOptions, "siafu.train_ranks")
    asked = RankOptions(**options)
    if asked.k > interactions.num_items:
        raise BadInput(f"k is {asked.k}, and there are {interactions.num_items} items: give a smaller k")
    if asked.patience is not None and not interactions.val.shape[1]:
        raise BadInput("patience needs validation pairs: give Interactions.of(…, val=…)")
    ours = model is None
    if model is None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(asked.seed)
            model = LightGCN(interactions.graph.num_vertices, asked.channels, asked.layers)
    training = _RankTraining(model, interactions, asked)
    config = training.config() | {"light_gcn": ours}
    with run_writer(out, config, training.metric.name, overwrite=overwrite) as writer:
        return training.run(progress, writer)


def _refuse_other_than_interactions(given: Any, what: str) -> None:
    if not isinstance(given, Interactions):
        raise BadInput(
            f"{what} takes siafu.Interactions, not {type(given).__name__}: make them with Interactions.of(train, test)"
        )


def _about(data: Interactions) -> dict[str, Any]:
    """How many users and items there are, and a checksum of all pairs."""
    pairs = checksum_of(data.train, data.val, data.test)
    return {"users": data.num_users, "items": data.num_items, "pairs": pairs}


class _RankTraining:
    def __init__(self, model: nn.Module, interactions: Interactions, options: RankOptions) -> None:
        self._model, self._data, self._options = model, interactions, options
        _encoded(model, interactions)  # refuses a model that does not fit
        self._optimizer = SplitOptimizer(
            model, interactions.graph, model, options.row_optimizer, lr=options.lr, fused=True
        )

    @property
    def metric(self) -> Metric:
        """Metric that the best epoch is chosen by."""
        return Metric(f"recall_at_{self._options.k}")

    def config(self) -> dict[str, Any]:
        """Settings, as the run's directory keeps them."""
        about = {"name": self._data.name, **_about(self._data)}
        return config_of(KIND, self._data.graph, self._model, self.metric, asdict(self._options), **about)

    def run(self, progress: Callable[[RankEpoch], Any], writer: RunWriter) -> RankRun:
        def ended(epoch: RankEpoch) -> None:
            writer.epoch_ended(epoch)
            progress(epoch)

        with kept_memory():  # every step makes tables of all vertices
            history, best = train_to_best(self._model, self._options, self._epoch, self.metric.name, ended)
        run = RankRun(self._model, self._data, self._options, history, best or history[-1], writer.path)
        writer.finish({"model": run.model}, history, run.best, run.summary())
        return run

    def _epoch(self, number: int, evaluated: bool) -> RankEpoch:
        began = time.perf_counter()
        losses = [self._step(*triples) for triples in self._batches(number)]
        trained = time.perf_counter()
        found = self._evaluated() if evaluated else {"val": None, "test": None}
        mean = mean_loss(losses, number + 1, self._options.lr)
        ended = time.perf_counter()
        return RankEpoch(number + 1, mean, **found, seconds=ended - began, evaluate_seconds=ended - trained)

    def _batches(self, epoch: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """For each step: vertices of users, of items that they have and of items that they have not."""
        users, items, others = self._data.draws(epoch, self._options.seed, self._options.sampling)
        vertices = [
            torch.from_numpy(each)
            for each in (users, items + self._data.num_users, others + self._data.num_users)
        ]
        for first in range(0, len(users), self._options.batch):
            user, item, other = (each[first : first + self._options.batch] for each in vertices)
            yield user, item, other

    def _step(self, user: Tensor, item: Tensor, other: Tensor) -> float:
        self._model.train()
        self._optimizer.zero_grad()
        rows = call_model(self._model, self._data.graph)
        # Picked at once: each pick's gradient is a table of all vertices.
        picked = torch.cat([user, item, other])
        of_user, of_item, of_other = rows.index_select(0, picked).split(len(user))
        behind = (of_user * of_other).sum(1) - (of_user * of_item).sum(1)
        loss = F.softplus(behind).mean()
        if self._options.penalty and isinstance(self._model, LearntRows):
            squares = self._model.rows.index_select(0, picked).square().sum()
            loss = loss + self._options.penalty * squares / (2 * len(user))
        loss.backward()
        self._optimizer.step()
        return loss.item()

    def _evaluated(self) -> dict[str, Any]:
        data, rows = self._data, _encoded(self._model, self._data)
        # Test items are ranked among those that are in neither part: a validation pair is known by then.
        return {
            "val": _measured(rows, data, data.val, [data.train], self._options.k),
            "test": _measured(rows, data, data.test, [data.train, data.val], self._options.k),
        }


def _measured(rows: Tensor, data: Interactions, pairs: Pairs, known: list[Pairs], k: int) -> Measures | None:
    """Means over the users that have held-out pairs."""
    if pairs.shape[1] == 0:
        return None
    counts = np.bincount(pairs[0], minlength=data.num_users)
    users = np.flatnonzero(counts)
    keys = pairs[0] * data.num_items + pairs[1]
    recall = ndcg = 0.0
    for some, best in _best(rows, users, data, known, k):
        hits = hits_of(best, some, keys, data.num_items)
        recall += float(recall_at(hits, counts[some]).sum())
        ndcg += float(ndcg_at(hits, counts[some]).sum())
    return {f"recall_at_{k}": recall / len(users), f"ndcg_at_{k}": ndcg / len(users)}


def _best(
    rows: Tensor, users: NDArray[np.int64], data: Interactions, known: list[Pairs], k: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Some users at a time, and the k items of highest score for each, best first, without known pairs."""
    items = rows[data.num_users :].T
    starts = [np.searchsorted(pairs[0], np.arange(data.num_users + 1)) for pairs in known]
    at_once = max(1, _SCORES_AT_ONCE // data.num_items)
    for first in range(0, len(users), at_once):
        some = users[first : first + at_once]
        scores = rows[torch.from_numpy(some)] @ items
        for pairs, start in zip(known, starts, strict=True):
            counts = start[some + 1] - start[some]
            ends = np.cumsum(counts)
            places = np.arange(ends[-1]) + np.repeat(start[some] - (ends - counts), counts)
            row = np.repeat(np.arange(len(some)), counts)
            scores[torch.from_numpy(row), torch.from_numpy(pairs[1, places])] = -torch.inf
        yield some, torch.topk(scores, k, dim=1).indices.numpy()


def _encoded(model: nn.Module, data: Interactions) -> Tensor:
    with mode_of(model, training=False), torch.no_grad():
        rows = call_model(model, data.graph)
    if rows.ndim != 2 or len(rows) != data.graph.num_vertices:
        raise BadInput(
            f"the model gives {list(rows.shape)}: let it give a row for each of the {data.num_users} users and {data.num_items} items"
        )
    return rows
