"""Trainer: the plain whole-graph loop, an epoch at a time. It judges every other way to train."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from siafu.errors import BadInput, Diverged
from siafu.graph import Graph
from siafu.report.metrics import EpochMetrics, best_epoch, is_better
from siafu.report.score import SPLITS, Target, rows_of

_OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
}


@dataclass(frozen=True, slots=True)
class Options:
    """How to train; see `train` for the fields. They decide a run's every number, but for `epochs`, its length."""

    epochs: int
    lr: float
    weight_decay: float
    decay: str
    optimizer: str
    seed: int
    patience: int | None
    normalize_features: bool
    evaluate_every: int

    def __post_init__(self) -> None:
        for name in ("epochs", "evaluate_every", "patience"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise BadInput(f"{name} is {value}: give a whole number from 1 up")
        if not 0 <= self.seed < 2**63:
            raise BadInput(f"seed is {self.seed}: give a whole number from 0 up")
        if not (self.lr > 0 and math.isfinite(self.lr)):
            raise BadInput(f"lr is {self.lr}: give a learning rate above 0")
        if not (self.weight_decay >= 0 and math.isfinite(self.weight_decay)):
            raise BadInput(f"weight_decay is {self.weight_decay}: give a number from 0 up")
        if self.decay not in ("all", "first"):
            raise BadInput(f"decay is {self.decay!r}: choose all (parameters) or first (the first layer's)")
        if self.optimizer not in _OPTIMIZERS:
            raise BadInput(f"unknown optimizer {self.optimizer!r}: choose one of {', '.join(_OPTIMIZERS)}")


class Trainer:
    """A training between two epochs: everything that decides how it goes on, and the step to the next.

    epoch:        how many are done
    history:      what each measured
    best_weights: the model's state after the best of them
    """

    def __init__(self, graph: Graph, model: nn.Module, options: Options) -> None:
        self.model = model
        self.options = options
        self.history: list[EpochMetrics] = []
        self.best: EpochMetrics | None = None
        self.best_weights = _copy_of(model.state_dict())
        self._graph = graph
        self._target = Target.of(graph)
        self._rows = rows_of(graph)
        if "train" not in self._rows:
            raise BadInput(
                f"graph {graph.name!r} has no training split: give it train, or import it with one"
            )
        if options.patience is not None and "val" not in self._rows:
            raise BadInput(
                f"patience needs a validation split, and graph {graph.name!r} has none: leave it out"
            )
        self._input = model_input(graph, normalize=options.normalize_features)
        self._optimizer = _OPTIMIZERS[options.optimizer](
            _parameter_groups(model, options), lr=options.lr, weight_decay=options.weight_decay
        )
        torch.manual_seed(options.seed)

    @property
    def epoch(self) -> int:
        return len(self.history)

    @property
    def stopped_early(self) -> bool:
        patience = self.options.patience
        return patience is not None and self.best is not None and self.epoch - self.best.epoch >= patience

    @property
    def done(self) -> bool:
        return self.epoch >= self.options.epochs or self.stopped_early

    def step(self) -> EpochMetrics:
        """Train one epoch, and evaluate it if it is its turn."""
        number = self.epoch + 1
        began = time.perf_counter()
        train_loss = self._update()
        trained = time.perf_counter()
        scores: dict[str, float | None] = dict.fromkeys(
            ("val_loss", *(f"{split}_accuracy" for split in SPLITS))
        )
        evaluated = number % self.options.evaluate_every == 0 or number == self.options.epochs
        if evaluated:
            scores |= self._scores()
        metrics = EpochMetrics(
            epoch=number,
            train_loss=train_loss,
            **scores,
            seconds=trained - began,
            evaluate_seconds=time.perf_counter() - trained if evaluated else None,
        )
        self.history.append(metrics)
        if metrics.evaluated and is_better(metrics, self.best):
            self.best = metrics
            self.best_weights = _copy_of(self.model.state_dict())
        return metrics

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint holds: with it and the history, training goes on as if it had never stopped."""
        tensors = {"random": torch.get_rng_state()}
        tensors |= {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        tensors |= {f"best.{name}": tensor for name, tensor in self.best_weights.items()}
        for parameter, values in self._optimizer.state_dict()["state"].items():
            for name, value in values.items():
                if value is not None:
                    tensors[f"optimizer.{parameter}.{name}"] = torch.as_tensor(value)
        return tensors

    def restore(self, tensors: dict[str, Tensor], history: list[EpochMetrics]) -> None:
        """Be again as when `state` was taken."""
        self.history = history
        self.best = best_epoch(history)
        self.model.load_state_dict(_under("model.", tensors))
        self.best_weights = _under("best.", tensors)
        state: dict[int, dict[str, Tensor]] = {}
        for key, value in _under("optimizer.", tensors).items():
            parameter, name = key.split(".", 1)
            state.setdefault(int(parameter), {})[name] = value
        groups = self._optimizer.state_dict()["param_groups"]
        self._optimizer.load_state_dict({"state": state, "param_groups": groups})
        torch.set_rng_state(tensors["random"])

    def _update(self) -> float:
        self.model.train()
        self._optimizer.zero_grad()
        logits = self._logits()
        if logits.shape != (self._graph.num_vertices, self._target.num_classes):
            raise BadInput(
                f"the model gives {list(logits.shape)} for a graph of {self._graph.num_vertices} vertices and "
                f"{self._target.num_classes} classes: build it with out_channels={self._target.num_classes}"
            )
        loss = self._target.loss(logits, self._rows["train"])
        value = loss.item()
        self._require_finite(value)
        loss.backward()
        self._optimizer.step()
        return value

    def _scores(self) -> dict[str, float]:
        logits = without_dropout(self.model, self._logits)
        found = self._target.scores(logits, self._rows)
        self._require_finite(*(score["loss"] for score in found.values()))
        scores = {f"{split}_accuracy": score["accuracy"] for split, score in found.items()}
        if "val" in found:
            scores["val_loss"] = found["val"]["loss"]
        return scores

    def _require_finite(self, *losses: float) -> None:
        for loss in losses:
            if not math.isfinite(loss):
                raise Diverged(
                    f"the loss is {loss} in epoch {self.epoch + 1}: training diverged; "
                    f"choose a learning rate below {self.options.lr:g} (lr, on the command line --lr)"
                )

    def _logits(self) -> Tensor:
        logits: Tensor = self.model(self._graph, *self._input)
        return logits


def model_input(graph: Graph, *, normalize: bool) -> tuple[Tensor, ...]:
    """What a model is called with after the graph: nothing where the graph's own features will do."""
    if not normalize:
        return ()
    from siafu.nn import features

    x = features(graph)
    sums = x.abs().sum(dim=1, keepdim=True)
    return (x / sums.masked_fill(sums == 0, 1.0),)


def without_dropout(model: nn.Module, call: Callable[[], Tensor]) -> Tensor:
    """What `call` gives with `model` in evaluation mode, and no gradients kept."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            return call()
    finally:
        model.train(training)


def _parameter_groups(model: nn.Module, options: Options) -> list[dict[str, object]]:
    everything = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not everything:
        raise BadInput("the model has no parameters to train")
    if options.decay == "all":
        return [{"params": everything}]
    layers = getattr(model, "convs", None)
    if not isinstance(layers, nn.ModuleList) or len(layers) == 0:
        raise BadInput(
            "decay is 'first' but the model does not list its layers in `convs`: choose decay='all'"
        )
    first = [parameter for parameter in layers[0].parameters() if parameter.requires_grad]
    inside = {id(parameter) for parameter in first}
    others = [parameter for parameter in everything if id(parameter) not in inside]
    return [{"params": first}, {"params": others, "weight_decay": 0.0}]


def _copy_of(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in weights.items()}


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
