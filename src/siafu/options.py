"""Options: how a run trains, and Session: where one session of it runs. Each option is one field here."""

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from siafu.base.errors import BadInput
from siafu.base.option import check, option
from siafu.weights.groups import groups_text, read_groups
from siafu.weights.policy import POLICIES

if TYPE_CHECKING:
    from siafu.graph.partition import Partition
    from siafu.objective.objective import Objective

LEARNING = "More of learning"
FILES = "More of the run's files and output"
MEMORY = "Memory and disk"
LAYOUT = "How the work is laid out"
LAMBDAS = "Lambdas: serverless threads for tensor tasks"
COST = "What it costs"
_learning, _files, _memory, _layout, _lambdas, _cost = (
    partial(option, panel=panel) for panel in (LEARNING, FILES, MEMORY, LAYOUT, LAMBDAS, COST)
)


class SchedulerMaker(Protocol):
    """A function that makes a scheduler of torch.optim.lr_scheduler for an optimizer."""

    def __call__(self, optimizer: Any, /) -> Any: ...


class Named(Protocol):
    """Anything with a name: here a `siafu.serverless.platforms.platform`."""

    @property
    def name(self) -> str: ...


ALL_EDGES = -1
"""A fanout: every in-edge of a vertex."""

_MOST_EDGES = 2**32
"""More in-edges than a vertex may have that is sampled: a fanout above draws no more."""

MOST_BEHIND = 3
"""Updates that a mini-batch may be behind: P3's bound."""


def groups_of(batch_order: str) -> int | None:
    """Groups of features that an order of batches asks for; 0: it asks for none; None: as many as fit."""
    if batch_order in ("auto", "random"):
        return 0
    kind, _, count = batch_order.partition(":")
    if kind != "buffer" or (
        (count or batch_order != kind) and (not count.isdigit() or not 4 <= int(count) <= 4096)
    ):
        raise BadInput(
            f"batch_order is {batch_order!r}: choose auto, random, buffer, or buffer:N with a number of groups from 4 to 4096"
        )
    return int(count) if count else None


def fanouts_of(asked: "str | Sequence[int]") -> tuple[int, ...]:
    """Numbers of edges, from the last layer to the first; what is no such thing is refused."""
    given = asked.split(",") if isinstance(asked, str) else asked
    try:
        found = [ALL_EDGES if str(each).strip() in ("all", "-1") else _number(each) for each in given]
    except (TypeError, ValueError):
        found = []
    if not found or any(each < 1 and each != ALL_EDGES for each in found):
        raise BadInput(f"fanout is {asked!r}: give a number from 1 up, or all, for each layer, such as 15,10")
    return tuple(min(each, _MOST_EDGES) for each in found)


def _number(given: "str | int") -> int:
    """A whole number; 2.5 is none."""
    return int(given) if isinstance(given, str) else operator.index(given)


def _check_layout(asked: str) -> None:
    kind, colon, phases = asked.partition(":")
    numbers = all(each.isdecimal() and int(each) > 0 for each in phases.split(","))
    if asked not in ("vertices", "columns", "auto") and not (kind == "columns" and colon and numbers):
        raise BadInput(
            f"unknown layout {asked!r}: choose vertices, columns, auto, or columns of some gathers, such as columns:1,2"
        )


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to train. These decide a run's every number, but for `epochs`, its length; `config.json` keeps them."""

    epochs: int = option(200, "How often to go over the graph.", least=1)
    lr: float = option(
        0.01, "Learning rate.", valid=(lambda lr: 0 < lr < math.inf, "give a learning rate above 0")
    )
    weight_decay: float = option(
        5e-4,
        "L2 penalty on the weights.",
        valid=(lambda decay: 0 <= decay < math.inf, "give a number from 0 up"),
    )
    decay: str = _learning(
        "all",
        "What weight decay falls on: all parameters, or the first layer's.",
        more='"first" is as in the paper on GCN.',
        choices=("all", "first"),
        wants="choose all (parameters) or first (the first layer's)",
    )
    optimizer: str = _learning(
        "adam",
        "adam, adamw or sgd.",
        more="With PyTorch's other settings.",
        choices=("adam", "adamw", "sgd"),
        noun="optimizer",
    )
    row_optimizer: str | None = _learning(
        None,
        "Optimizer of learnt rows of vertices (nn.Embedding), of which only those with a gradient move: sparse_adam or adagrad.",
        more="As PyTorch's SparseAdam and Adagrad do with sparse gradients: without weight decay. See docs/objectives.md.",
        unset="sparse_adam for nn.Embedding(…, sparse=True) with adam or adamw; else the optimizer of all weights",
        choices=("sparse_adam", "adagrad"),
        noun="row_optimizer",
    )
    scheduler: "str | SchedulerMaker | None" = _learning(
        None,
        "Learning rates over the epochs, by a class of torch.optim.lr_scheduler: 'StepLR(step_size=50, gamma=0.5)'.",
        more="Or a function that makes a scheduler of torch's for an optimizer. See docs/loop.md.",
        unset="lr, always",
        metavar="NAME(ARGUMENTS)",
    )
    groups: "str | dict[str, dict[str, float]] | None" = _learning(
        None,
        "Learning rates and weight decays of some parameters: 'convs.0: lr=0.1 weight_decay=0; *.bias: weight_decay=0'.",
        more='Or {"convs.0": {"lr": 0.1}, …}. See docs/loop.md.',
        unset="lr and weight_decay are for all",
        metavar="PATTERN: SETTINGS; …",
    )
    clip: float | None = _learning(
        None,
        "Scale the gradient so that its norm is at most this.",
        more="The norm of all parameters' gradients together, over the whole graph.",
        valid=(lambda most: 0 < most < math.inf, "give a norm above 0"),
    )
    seed: int = option(
        0,
        "Seed of the first weights and of dropout.",
        more="In Python of dropout alone, whose masks depend on nothing else: not on mode, servers or intervals.",
        least=0,
        valid=(lambda seed: seed < 2**63, "give a whole number below 2**63"),
    )
    patience: int | None = option(
        None, "Stop after so many epochs that were no better.", more="Counted from the best epoch.", least=1
    )
    evaluate_every: int = _learning(
        1, "Epochs from one evaluation to the next.", more="The last is always evaluated.", least=1
    )
    split: str | None = option(
        None,
        "Draw a split of the labelled vertices: random:60/20/20 (train, val, test), or stratified:60/20/20.",
        more='"stratified": the same shares in every class.',
        unset="the graph's own",
        metavar="KIND:A/B/C",
    )
    split_seed: int = _learning(0, "Seed of the split that is drawn.", least=0)
    normalize_features: bool = option(
        False,
        "Scale each vertex's features to sum to 1.",
        more="They are divided by the sum of their magnitudes.",
    )
    objective: "str | Objective | None" = option(
        None,
        "What is learnt: classes (one a vertex), labels (any number a vertex) or regression (a quantity).",
        more="Or an objective of your own: see docs/objectives.md.",
        unset="what the graph has",
        metavar="NAME",
    )
    class_weights: "str | Sequence[float] | None" = _learning(
        None,
        "How much the loss of each class counts: a number for each, with commas between them, or balanced.",
        more='Or a list of numbers. "balanced": the rarer a class is among the training rows, the more.',
        unset="all count alike",
        metavar="balanced|W,W,…",
    )
    label_smoothing: float = _learning(
        0.0,
        "Share of the loss that all classes have together, whatever the label (label smoothing).",
        valid=(lambda share: 0 <= share < 1, "give a share from 0 up to, not at, 1"),
    )
    mode: str = _layout(
        "pipe",
        "sync: a barrier after every step; pipe: tasks overlap, same result; async: gathers read what is there; "
        "sampled: mini-batches.",
        more='"async" keeps within `staleness`, and its first epoch is exact. "sampled" draws some in-edges of each vertex: see '
        "docs/sampling.md.",
        choices=("sync", "pipe", "async", "sampled"),
        noun="mode",
    )
    fanout: "str | Sequence[int] | None" = _layout(
        None,
        "In-edges of a vertex that are drawn, from the last layer to the first, such as 15,10 (sampled).",
        more='Or a list of numbers; "all" draws every one.',
        unset="10 in every layer",
        metavar="N,N,…",
    )
    batch: int | None = _layout(None, "Training vertices of a mini-batch (sampled).", unset="1024", least=1)
    batch_order: str = _layout(
        "random",
        "Order of mini-batches: random; buffer: those whose features lie together follow each other; auto: what reads less from disk (sampled).",
        more='"buffer:16" cuts the features into 16 groups, of which three are in memory; "buffer" into as many as fit `memory`. "auto" is random '
        "where the features fit. See docs/sampling.md.",
        metavar="auto|random|buffer[:N]",
    )
    staleness: int = _layout(
        0,
        "Epochs that an interval may be ahead of the slowest (async), or updates that a batch is behind, at most 3 (sampled).",
        least=0,
    )
    servers: int = _layout(
        1, "Graph servers, each with a part of the graph: in this process, or on a cluster.", least=1
    )
    intervals: int | None = _layout(
        None,
        "Parts of a server's vertices that are worked on one by one.",
        more="With `resume` as many as there were.",
        unset="as many as pay",
        least=1,
    )
    partition: "str | Partition" = _layout(
        "auto",
        "Which vertices a server owns: auto (the one saved in the store, or the best method), metis, stream, contiguous or hash.",
        more="Or a `Partition`; see `siafu partition`.",
    )
    layout: str = _layout(
        "vertices",
        "What a server gathers: vertices (whole rows of its own), columns (some columns of all rows), or auto: the cheaper.",
        more='"columns:2" is for G2 alone, as `siafu explain` names gathers. "auto" chooses on a cluster; in one process, where no '
        "row travels, it is vertices. See docs/columns.md.",
        metavar="vertices|columns[:N,…]|auto",
    )
    reorder: str = _layout(
        "off",
        "Walk the vertices in another order: rabbit, rcm, degree, metis; auto: rabbit if it pays over the epochs; off: the store's.",
        more="Ids, splits, labels and predictions stay yours; the run's config keeps what auto chose. See docs/reordering.md.",
        choices=("off", "auto", "rabbit", "rcm", "degree", "metis"),
        noun="order",
    )
    weights: str = _layout(
        "stash",
        "Versions of the weights in use at a time: stash, any number; 2bw, two; flush, one.",
        choices=tuple(POLICIES),
        noun="weight policy",
    )
    weight_servers: int = _layout(1, "Servers that share the weights and their updates.", least=1)
    update_every: int | None = _layout(
        None, "Gradients that make an update, whoever's come first (async).", unset="an epoch's", least=1
    )
    exact_above: float | None = _layout(
        None,
        "Go on exactly once the validation accuracy is at least this (async).",
        more="Or another metric of the objective, as good as this.",
        least=0.0,
        most=1.0,
        wants="give a share of right vertices, from 0 to 1",
    )
    lambdas: str | Named = _lambdas(
        "off",
        "Where tensor tasks run: off (threads), local (Lambdas on this machine) or aws (AWS Lambda).",
        more="Local ones are processes under AWS's own runtime client, which pull their rows and weights over the network; "
        'for "aws" there is the function that `siafu lambda deploy` makes. Or a `siafu.serverless.platforms.platform`.',
        choices=("off", "local", "aws"),
    )
    lambda_count: int | str | None = _lambdas(
        None,
        "Lambdas at most, or as many as prove best.",
        more='"auto" finds that number anew after every epoch.',
        unset="local: one a core; aws: auto",
        least=1,
        choices=("auto",),
        metavar="N|auto",
    )

    @classmethod
    def to_measure(cls, epochs: int, intervals: int | None, *, mode: str = "pipe") -> "Options":
        """Where only the epochs' time counts: one server, and an evaluation after the last epoch."""
        return cls(epochs=epochs, weight_decay=0.0, evaluate_every=epochs, mode=mode, intervals=intervals)

    def __post_init__(self) -> None:
        if not isinstance(self.optimizer, str):
            raise BadInput(
                f"optimizer is an object, {type(self.optimizer).__name__}: give the name adam, adamw or sgd, and lr and weight_decay beside it; "
                "with an optimizer of your own, write the loop with siafu.compile (docs/loop.md)"
            )
        check(self)
        if self.lambda_count is not None and self.lambdas == "off":
            raise BadInput(
                "lambda_count says how many Lambdas there are, and lambdas is off: choose local or aws"
            )
        self._check_rates()
        self._check_sampled()
        _check_layout(self.layout)
        if self.layout not in ("vertices", "auto") and self.mode == "async":
            raise BadInput(
                f"layout is {self.layout}, and columns are for modes sync and pipe, where every server has the rows of one epoch: "
                f"leave it out, or choose another mode than {self.mode}"
            )
        for name, unset in (("staleness", 0), ("update_every", None), ("exact_above", None)):
            if name == "staleness" and self.mode == "sampled":
                continue
            if self.mode != "async" and getattr(self, name) != unset:
                raise BadInput(
                    f"{name} is for mode async, and mode is {self.mode}: leave it out, or choose async"
                )

    def _check_sampled(self) -> None:
        if self.fanout is not None:
            fanouts_of(self.fanout)
        buffered = groups_of(self.batch_order) != 0
        if buffered and (self.mode != "sampled" or self.servers > 1):
            raise BadInput(
                f"batch_order is {self.batch_order}, and a buffer of features is for mode sampled on one server: "
                "leave it out, or choose that"
            )
        if self.mode != "sampled":
            for name in ("fanout", "batch"):
                if getattr(self, name) is not None:
                    raise BadInput(
                        f"{name} is for mode sampled, and mode is {self.mode}: leave it out, or choose sampled"
                    )
            return
        if self.row_optimizer is not None:
            raise BadInput(
                f"row_optimizer is {self.row_optimizer}, and mode sampled learns no rows of vertices: leave it out, or choose another mode"
            )
        for name, most in (("weight_servers", 1), ("lambdas", "off")):
            found = getattr(self, name)
            if found != most:
                raise BadInput(
                    f"{name} is {getattr(found, 'name', found)}, and mode sampled updates weights in one process and has no Lambdas: "
                    "leave it out, or choose another mode"
                )
        if self.staleness > MOST_BEHIND:
            raise BadInput(
                f"staleness is {self.staleness}, and a batch is at most {MOST_BEHIND} updates behind in mode sampled: give less"
            )
        if self.layout not in ("vertices", "columns", "auto"):
            raise BadInput(
                f"layout is {self.layout}, and in mode sampled it is that of the features: choose vertices, columns or auto"
            )

    def _check_rates(self) -> None:
        if self.row_optimizer == "sparse_adam" and self.optimizer == "sgd":
            raise BadInput(
                "row_optimizer is sparse_adam, and optimizer sgd has no betas for it: choose optimizer adam or adamw, or row_optimizer adagrad"
            )
        if self.groups is not None:
            read_groups(self.groups)
            if self.decay != "all":
                raise BadInput(
                    f"decay is {self.decay}, and groups say which weight decay falls on what: leave one out"
                )
        if self.update_every is not None and (self.scheduler is not None or self.groups is not None):
            name = "scheduler" if self.scheduler is not None else "groups"
            raise BadInput(
                f"{name} is for updates that are an epoch's, and update_every makes others: leave one out"
            )

    def as_json(self) -> dict[str, Any]:
        """As `config.json` keeps them; what only Python can give, by its name."""
        found = {each.name: getattr(self, each.name) for each in fields(Options)}
        if self.fanout is not None:
            found["fanout"] = ",".join(
                "all" if each == ALL_EDGES else str(each) for each in fanouts_of(self.fanout)
            )
        found["partition"] = getattr(self.partition, "method", self.partition)
        found["lambdas"] = getattr(self.lambdas, "name", self.lambdas)
        found["objective"] = getattr(self.objective, "name", self.objective)
        if self.class_weights is not None and not isinstance(self.class_weights, str):
            found["class_weights"] = ",".join(map(repr, map(float, self.class_weights)))
        if callable(self.scheduler):
            found["scheduler"] = getattr(self.scheduler, "__qualname__", type(self.scheduler).__qualname__)
        if self.groups is not None:
            found["groups"] = groups_text(self.groups)
        return found


@dataclass(frozen=True, kw_only=True)
class Session:
    """Where a run is carried out, saved and paid for: nothing of it changes what is learnt, and the next may be another."""

    cluster: str | None = _layout(
        None,
        "Run the servers on a Ray cluster: the one on this machine, or at an address.",
        more='"auto" or the address. The graph must be a store that all its machines reach at the same path. A server that '
        "is lost is replaced.",
        metavar="auto|ADDRESS",
    )
    redundancy: int | str = _layout(
        0,
        "Warm copies of each server on other machines of a cluster: loaded and compiled, to take a lost server's place at once.",
        more='At most servers - 1. "eager": one of each, and those of graph servers run forward tasks beforehand, in idle time. '
        "See docs/spot.md.",
        least=0,
        choices=("eager",),
        metavar="N|eager",
    )
    memory: str | None = _memory(
        None,
        "Memory that the whole process may take, such as 8GB: the run spares memory to fit, or is refused before it begins.",
        more="See docs/memory.md.",
        unset="what is free, less a reserve",
        metavar="SIZE",
    )
    scratch: str | Path | None = _memory(
        None,
        "A directory for tables that do not fit memory: files without names, which are gone when the run ends.",
        more="See docs/memory.md.",
        unset="all tables are in memory",
        metavar="DIR",
    )
    advisor: str = _layout(
        "on",
        "Time ways to walk the edges while gathers run, and keep the fastest with the store: on; off: go by the rules alone.",
        more="No bit of a result depends on it. See docs/advisor.md.",
        choices=("on", "off"),
    )
    instance: str | None = _cost(
        None,
        "What it runs on, such as c5.2xlarge, so that its cost is known.",
        more='Or "c5.2xlarge:spot".',
        unset="as on the type most like this machine",
        metavar="TYPE[:spot]",
    )
    prices: str | Path | None = _cost(
        None, "Prices of your own.", more="See docs/cost.md.", unset="$SIAFU_PRICES", metavar="FILE"
    )
    out: str | Path | None = option(
        None, "The run's directory.", more="See `siafu.report.files.run_directory`.", unset="nothing is saved"
    )
    resume: bool = option(
        False, "Go on with the run in --out.", more="From its last checkpoint, as if it had never stopped."
    )
    overwrite: bool = option(False, "Replace the run in --out.")
    checkpoint_every: float = _files(
        10.0,
        "Seconds from one checkpoint to the next; 0: after every epoch.",
        least=0,
        wants="give seconds, from 0 up",
    )
    trace: str = _files(
        "sampled",
        "Epochs whose tasks are traced, for Perfetto and the report: sampled (the first, some more, the last), full or off.",
        more="In the run's directory; full: all that fit.",
        choices=("off", "sampled", "full"),
    )
    tensorboard: bool = _files(
        False, "Write metrics for TensorBoard, too.", more="In the run's directory, under tensorboard."
    )
