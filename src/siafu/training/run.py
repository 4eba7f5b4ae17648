"""Run: one training, done, and what it can do."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any

import torch
from torch import Tensor, nn

from siafu.base.errors import BadInput
from siafu.graph import Graph
from siafu.graph.foreign import graph_of
from siafu.objective.objective import Objective, target_of
from siafu.objective.registry import objective_of_run
from siafu.report.files.checkpoint import is_whole, load_tensors
from siafu.report.files.metrics import EpochMetrics, best_epoch, read_metrics
from siafu.report.files.run_directory import RunDirectory
from siafu.report.pages.plot import Plot, plot_history
from siafu.report.pages.run_card import run_card
from siafu.server.plan import rows_of
from siafu.tables import ScratchDirectory
from siafu.training.outputs.feature_columns import columns_as_trained
from siafu.training.outputs.hidden_rows import HiddenModel, hidden_rows
from siafu.training.outputs.inference import Inference
from siafu.training.records.model_description import build_described

# What the pipeline counts, as it stands in a summary.
COUNTERS = (
    "max_staleness_seen",
    "staleness_histogram",
    "row_age_histogram",
    "weight_versions_peak",
    "gradients_applied",
    "bytes_scattered",
    "sampled_vertices",
    "sampled_edges",
    "bytes_of_structure",
    "bytes_of_features",
    "bytes_of_products",
    "bytes_of_weights",
    "bytes_read",
    "bytes_written",
    "disk_busy_seconds",
    "disk_wait_seconds",
    "memory_budget_bytes",
    "memory_planned_bytes",
    "lambda",
)

# The same where features of batches come through a buffer.
_BUFFERED = ("feature_bytes_read", "feature_bytes_random_order")

# The same where servers were lost.
_LOSSES = (
    "servers_lost",
    "epochs_lost",
    "recovery_seconds",
    "servers_moved",
    "rows_compared",
    "rows_differ",
    "tasks_done_ahead",
)

# How the work was laid out, as it stands in a summary.
_LAYOUT = ("mode", "fanout", "batch", "staleness", "servers", "intervals", "weights", "weight_servers")

NO_LAMBDAS = {
    "invocations": 0,
    "relaunched": 0,
    "duplicates_dropped": 0,
    "billed_gb_seconds": 0.0,
    "usd": 0.0,
}

# What a run's files must hold for `Run` to work.
_IN_CONFIG: dict[str, type | UnionType] = {
    "graph.name": str,
    "graph.features": int,
    "graph.classes": int,
    "graph.metric": str,
    "model.name": str,
    "training.seed": int,
    "training.normalize_features": bool,
}
# What to do with directories of other trainings, by their `kind`.
_INSTEAD: dict[str, str] = {
    "embedding": "embeddings, not a model: use 'siafu embed predict', 'neighbours' or 'export'",
    "links": "a run of siafu.train_links: use siafu.LinkRun.load(path, graph) from Python",
    "ranks": "a run of siafu.train_ranks: use siafu.RankRun.load(path, interactions) from Python",
}
_IN_SUMMARY: dict[str, type | UnionType] = {"seconds_total": int | float, "peak_rss_bytes": int}


def _few(names: tuple[str, ...], most: int = 8) -> str:
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")


def _silent(line: str) -> None:
    """Tell nobody."""


@dataclass(frozen=True, eq=False)
class Run:
    """One training, done.

    model:          with the weights of the best epoch
    history:        what each epoch measured
    config:         what was asked for: data, model, options
    counters:       what the pipeline counted: see docs/pipeline.md
    seconds_total:  from start to end, evaluations included, pauses between sessions left out
    peak_rss_bytes: the most memory the process held
    objective:      what it learnt
    path:           the run's directory; None: it was not saved
    cost:           its bill, and what it would have cost elsewhere: see docs/cost.md; None: of a run of an older Siafu
    """

    model: nn.Module
    history: list[EpochMetrics]
    config: dict[str, Any]
    counters: dict[str, Any]
    seconds_total: float
    peak_rss_bytes: int
    objective: Objective
    path: Path | None = None
    cost: dict[str, Any] | None = None

    @property
    def class_names(self) -> tuple[str, ...]:
        """The name of each class that it learnt; empty: they are numbers."""
        return tuple(self.config["graph"].get("class_names", ()))

    def __repr__(self) -> str:
        scores = self.summary()
        split = next((s for s in ("test", "val") if scores[f"{s}_accuracy"] is not None), "train")
        found = scores[f"{split}_accuracy"]
        return f"Run({scores['model']} on {scores['dataset']}, {len(self.history)} epochs, {split} {self.objective.metric.name} {found:.4f})"

    def _repr_html_(self) -> str:
        return run_card(self.summary())

    def plot(self) -> Plot:
        """Loss and accuracies over the epochs: notebooks show it, and `save` writes an .svg file."""
        return plot_history(self.history, self.objective.metric)

    @classmethod
    def load(
        cls, path: str | Path, model: nn.Module | None = None, objective: Objective | None = None
    ) -> "Run":
        """A finished run from its directory.

        Pass `model`, as it was built, and `objective`, if they are of your own making.
        """
        directory = RunDirectory(Path(path))
        config = directory.config()
        if (other := _INSTEAD.get(str(config.get("kind")))) is not None:
            raise BadInput(f"{path} holds {other}")
        summary = directory.summary()
        _refuse_damage(config, _IN_CONFIG, directory.path / "config.json")
        _refuse_damage(summary, _IN_SUMMARY, directory.path / "summary.json")
        if model is None:
            model = build_described(config["model"], directory.path, "siafu.Run.load(path, model)")
        weights = _weights_of(directory)
        try:
            model.load_state_dict(weights)
        except RuntimeError as error:
            reason = " ".join(str(error).split())
            raise BadInput(f"{directory.model} holds the weights of another model: {reason}") from error
        history = read_metrics(directory.metrics_path)
        objective = objective or objective_of_run(config)
        if best_epoch(history, objective.metric) is None:
            raise BadInput(f"{directory.metrics_path} holds no epoch that was evaluated: copy the run again")
        return cls(
            model,
            history,
            config,
            {name: summary[name] for name in (*COUNTERS, *_BUFFERED, *_LOSSES) if name in summary},
            summary["seconds_total"],
            summary["peak_rss_bytes"],
            objective,
            directory.path,
            summary["cost"] if isinstance(summary.get("cost"), dict) else None,
        )

    def summary(self) -> dict[str, Any]:
        """What came of the run, as JSON takes it; losses and accuracies are those of the best epoch."""
        best = best_epoch(self.history, self.objective.metric)
        assert best is not None, "the last epoch is always evaluated"
        evaluations = [e.evaluate_seconds for e in self.history if e.evaluate_seconds is not None]
        return {
            "dataset": self.config["graph"]["name"],
            "model": self.config["model"]["name"],
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "metric": self.objective.metric.name,
            "objective": self.config.get("objective"),
            **{name: self.config["training"].get(name) for name in _LAYOUT},
            "seed": self.config["training"]["seed"],
            "epochs": len(self.history),
            "best_epoch": best.epoch,
            "train_loss": best.train_loss,
            "val_loss": best.val_loss,
            "train_accuracy": best.train_accuracy,
            "val_accuracy": best.val_accuracy,
            "test_accuracy": best.test_accuracy,
            "seconds_total": self.seconds_total,
            "seconds_per_epoch": _median_after_first([e.seconds for e in self.history]),
            "seconds_per_evaluation": _median_after_first(evaluations),
            "peak_rss_bytes": self.peak_rss_bytes,
            **self.counters,
            "lambda": self.counters.get("lambda", NO_LAMBDAS),
            "cost_usd": None if self.cost is None else self.cost.get("usd"),
            "value": None if self.cost is None else self.cost.get("value"),
            "cost": self.cost,
            "path": None if self.path is None else str(self.path),
        }

    def predict(
        self, graph: Graph, *, memory: str | None = None, scratch: str | Path | None = None
    ) -> Tensor:
        """[V] the likeliest class of each vertex, or [V, C] booleans where a vertex may have several labels.

        With an objective of your own: its answers.

        memory:  a size that this process may take, such as "8GB"; None: what is free, less a reserve
        scratch: a directory for tables that do not fit; None: all are in memory
        """
        return self.objective.answers(self.logits(graph, memory=memory, scratch=scratch))

    def probabilities(
        self, graph: Graph, *, memory: str | None = None, scratch: str | Path | None = None
    ) -> Tensor:
        """[V, C]: how likely each class, or each label, is. memory, scratch: as for `predict`."""
        return self.objective.probabilities(self.logits(graph, memory=memory, scratch=scratch))

    def evaluate(
        self,
        graph: Graph,
        *,
        memory: str | None = None,
        scratch: str | Path | None = None,
        told: Callable[[str], None] = _silent,
    ) -> dict[str, dict[str, float]]:
        """For each split of `graph`: how many `rows` it has, the `loss` and the `accuracy` on them.

        The training's graph without a split of its own has the one that was drawn for the training (`split`).

        With an objective that has another metric, `accuracy` is that. memory, scratch: as for `predict`; told: hears what was
        chosen to fit memory.
        """
        graph = self._split_as_trained(graph_of(graph, "evaluate"))
        objective = self.objective.on(graph)
        y = target_of(objective, graph)
        if graph.num_classes != self.config["graph"]["classes"]:
            raise BadInput(
                f"graph {graph.name!r} has {graph.num_classes} classes, the run was trained for "
                f"{self.config['graph']['classes']}: give a graph of the same kind"
            )
        if self.class_names and self.class_names != graph.class_names:
            theirs = f"are {_few(graph.class_names)}" if graph.class_names else "have no names"
            told(
                f"classes of the run are {_few(self.class_names)}; those of {graph.name} {theirs}: the scores hold only if both "
                "number the same classes alike"
            )
        splits = rows_of(graph)
        if not splits:
            raise BadInput(
                f"graph {graph.name!r} has no split, and scores are those of a split's vertices: give it one "
                "(siafu import --split, graph.split)"
            )
        wanted = torch.unique(torch.cat([*splits.values(), torch.empty(0, dtype=torch.int64)]))
        out = self.logits(graph, rows=wanted, memory=memory, scratch=scratch, told=told)
        return objective.scores(out, y, splits)

    def _split_as_trained(self, graph: Graph) -> Graph:
        """The graph with the split that was drawn for this run, if it is the graph of the run and has none of its own."""
        training, known = self.config["training"], self.config["graph"]
        same = (graph.num_vertices, graph.num_edges) == (known["vertices"], known["edges"])
        if rows_of(graph) or not same:
            return graph
        return graph.split_as(training.get("split"), training.get("split_seed", 0))

    def rows(
        self,
        graph: Graph,
        layer: int | str = -2,
        *,
        memory: str | None = None,
        scratch: str | Path | None = None,
        told: Callable[[str], None] = _silent,
    ) -> Tensor:
        """[V, C]: rows of a hidden layer, dropout off.

        layer: a layer's number in the model's `convs`: its rows as the next layer takes them, after activation and norm; -1 is
               the model's output, -2 the last hidden layer. Or the name of any of the model's modules: what it gives
        memory, scratch, told: as for `evaluate`
        """
        graph = graph_of(graph, "rows")
        model = self.model if layer == -1 else HiddenModel(self.model, layer)
        if layer != -1:
            with hidden_rows(self.model, layer):
                """A layer that is not there is refused before anything is compiled."""
        return self._outputs(model, graph, None, memory, scratch, told)

    def logits(
        self,
        graph: Graph,
        *,
        rows: Tensor | None = None,
        memory: str | None = None,
        scratch: str | Path | None = None,
        told: Callable[[str], None] = _silent,
    ) -> Tensor:
        """[V, C]: the model's output, dropout off.

        rows: vertices whose output is wanted, ascending: others have zeros; None: all. memory, scratch, told: as for `evaluate`
        """
        return self._outputs(self.model, graph_of(graph, "predict"), rows, memory, scratch, told)

    def _outputs(
        self,
        model: nn.Module,
        graph: Graph,
        rows: Tensor | None,
        memory: str | None,
        scratch: str | Path | None,
        told: Callable[[str], None],
    ) -> Tensor:
        """[V, C]: what a model of this run gives, under a budget."""
        graph = columns_as_trained(
            graph, self.config["graph"], None if scratch is None else Path(scratch), told
        )
        pass_ = Inference(
            graph,
            model,
            normalize=self.config["training"]["normalize_features"],
            rows=rows,
            memory=memory,
            scratch=None if scratch is None else ScratchDirectory(Path(scratch)),
        )
        for line in pass_.fit.told():
            told(line)
        return pass_.run()

    @property
    def multi_label(self) -> bool:
        return bool(self.config["graph"]["metric"] == "micro_f1")


def _weights_of(directory: RunDirectory) -> dict[str, Tensor]:
    """The best weights, and a look at whether the files beside them are those of the same run, to the bit."""
    old = directory.may_lack_checksums
    try:
        weights, state = load_tensors(directory.model, may_lack_checksum=old)
    except BadInput as error:
        left = f"; {directory.checkpoint} is whole: training again with resume writes the weights again"
        raise BadInput(f"{error}{left if is_whole(directory.checkpoint) else ''}") from error
    known = state.get("files")
    if not old or known is not None:
        directory.check(known if isinstance(known, dict) else {})
    return weights


def _refuse_damage(found: dict[str, Any], wanted: dict[str, type | UnionType], file: Path) -> None:
    """Refuse a file of a run that lacks what we read from it later on."""
    for name, kind in wanted.items():
        value: Any = found
        for key in name.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        if not isinstance(value, kind):
            raise BadInput(f"{file} lacks or misnames {name!r}: copy the run again, or train it again")


def _median_after_first(values: list[float]) -> float | None:
    # The first epoch compiles, maps and warms up.
    return statistics.median(values[1:] or values) if values else None
