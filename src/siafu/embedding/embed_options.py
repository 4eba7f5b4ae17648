"""EmbedOptions: how embeddings are trained, and EmbedSession: where. Each option is one field here."""

import math
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from siafu.base.errors import BadInput
from siafu.base.option import check, option, same_option
from siafu.options import Options, Session

# Names only, and no imports of what they name: a command line that is wrong should not wait for PyTorch and Numba.
SCORES = ("distmult", "complex", "transe", "transe-l1", "rotate", "dot")
LOSSES = ("softmax", "logistic", "margin")
OPTIMIZERS = ("adagrad", "adam")
ORDERS = ("beta", "comet", "random")
PRECISIONS = ("fp32", "mixed", "bf16")
PRODUCTS = ("fp32", "bf16")
TIES = ("mean", "optimistic", "pessimistic")

LOSS = "The loss and its negatives"
EVALUATION = "Evaluation"
PIPELINE = "How the work is laid out"
_loss, _evaluation, _pipeline = (partial(option, panel=panel) for panel in (LOSS, EVALUATION, PIPELINE))

_PLENTY = "give a number from 0 up"
_SHARE = (lambda share: 0 <= share < 1, "give a share from 0 up, and below 1")


@dataclass(frozen=True, kw_only=True)
class EmbedOptions:
    """How to train embeddings. These decide a run's every number, but for `epochs`, its length; `config.json` keeps them."""

    score: str = option(
        "distmult",
        "How a triple is scored: distmult, complex, transe (L2), transe-l1, rotate or dot (without relations).",
        choices=SCORES,
        noun="score",
    )
    dim: int = option(
        100, "Width of an entity's vector; complex and rotate have half as many pairs.", least=1
    )
    epochs: int = option(20, "How often to go over the training triples.", least=1)
    batch: int = option(1000, "Triples of one update.", least=1)
    lr: float = option(
        0.15, "Learning rate.", valid=(lambda lr: 0 < lr < math.inf, "give a learning rate above 0")
    )
    lr_decay: float = option(
        1.0,
        "Multiply the learning rate by this after every epoch; 1: it stays.",
        valid=(lambda factor: 0 < factor <= 1, "give a factor above 0, and at most 1"),
    )
    optimizer: str = option(
        "adagrad",
        "adagrad or adam; both touch only the rows that a batch names.",
        choices=OPTIMIZERS,
        noun="optimizer",
    )
    reciprocal: bool = option(
        True,
        "Learn a second vector of each relation, for questions about heads.",
        flags=("--reciprocal/--no-reciprocal",),
    )
    unit_entities: bool = option(
        False, "Scale entities to length 1 after each update, as the paper on TransE does."
    )
    regularization: float = option(
        0.0,
        "Weight of the penalty on the vectors of each triple.",
        valid=(lambda weight: 0 <= weight < math.inf, _PLENTY),
    )
    regularizer: str = option("n3", "The penalty: n3 (sum of |x|³) or l2 (sum of x²).", choices=("n3", "l2"))
    dropout: float = option(
        0.0, "Share of the numbers of entities' vectors that a batch takes as 0.", valid=_SHARE
    )
    relation_dropout: float = option(0.0, "The same for relations' vectors.", valid=_SHARE)
    precision: str = option(
        "fp32",
        "fp32, mixed (products of matrices in bf16: less time) or bf16 (the entities' tables in bf16: half the memory).",
        more="mixed is --products bf16. With bf16, vectors and what their optimizer keeps are bfloat16; they are computed with and added up in fp32.",
        choices=PRECISIONS,
    )
    products: str = option(
        "fp32",
        "Numbers that products of matrices take: fp32, or bf16 in half the time (distmult, complex, dot).",
        more="For processors that multiply bfloat16 (AVX512-BF16, AMX); on others bf16 is slower. Sums, updates and evaluations stay in fp32.",
        choices=PRODUCTS,
    )
    seed: int = same_option(Options, "seed")
    loss: str = _loss(
        "softmax",
        "softmax, logistic or margin, of a triple beside its negatives.",
        choices=LOSSES,
        noun="loss",
    )
    negatives: int = _loss(500, "Entities drawn for each side of a triple.", least=1)
    all_entities: bool = _loss(
        False,
        "Every entity is a negative, in place of a draw: for small graphs.",
        more="The time of a batch grows with the number of entities, and all vectors are in memory.",
    )
    chunk: int = _loss(500, "Triples that share their negatives.", least=1)
    degree_share: float = _loss(
        0.0, "Share of the negatives that is drawn as often as triples name them.", least=0.0, most=1.0
    )
    filter_negatives: bool = _loss(False, "Leave negatives out that make a training triple.")
    margin: float = _loss(
        0.0,
        "γ of the losses margin (at least 1 is usual), logistic (rotate: 6 to 24) and softmax (what the triple must be ahead by).",
        valid=(lambda margin: 0 <= margin < math.inf, _PLENTY),
    )
    adversarial: float = _loss(
        0.0,
        "Weigh negatives by the softmax of their scores times this (logistic).",
        more="As in the paper on RotatE; 0: all count alike.",
        valid=(lambda temperature: 0 <= temperature < math.inf, _PLENTY),
    )
    evaluate_every: int = _evaluation(
        5,
        "Epochs from one filtered MRR on the validation triples to the next.",
        more="The last is always evaluated.",
        least=1,
    )
    patience: int | None = _evaluation(
        None,
        "Stop after so many epochs whose MRR was no better.",
        more="Counted from the best epoch.",
        least=1,
    )
    ties: str = _evaluation(
        "mean",
        "Rank among candidates of the same score: mean (of best and worst), optimistic or pessimistic.",
        choices=TIES,
    )
    candidates: int | None = _evaluation(
        None,
        "Rank among so many entities, drawn once at random: for huge graphs.",
        more="Such ranks are better than among all: the summary names the sample.",
        unset="all entities",
        least=1,
    )
    staleness: int = _pipeline(
        16,
        "Batches under way at a time, at most.",
        more="A batch begins when all but the latest so many before it, less one, are written. There are never more "
        "than threads. Relations are read when a batch is computed, and updated at once.",
        least=1,
    )
    exact: bool = _pipeline(
        False, "One batch at a time, its chunks on all cores: the same bits on any number of threads."
    )

    partitions: int | None = _pipeline(
        None,
        "Parts of the entities' vectors on disk.",
        unset="all in memory, or as many as fit --memory",
        least=2,
        most=256,
    )
    buffer: int | None = _pipeline(
        None, "Partitions in memory at a time.", unset="a quarter of them, two at least", least=2
    )
    order: str = _pipeline(
        "comet",
        "Order of partitions: comet (closest to a shuffle), beta (fewest swaps) or random.",
        choices=ORDERS,
    )
    servers: int = _pipeline(
        1,
        "Servers that train partitions side by side: processes of this machine, or on a cluster.",
        more="Four partitions each, unless told otherwise.",
        least=1,
        most=128,
    )

    def __post_init__(self) -> None:
        check(self)
        if self.partitions is None and self.buffer is not None:
            raise BadInput(
                "buffer says how many partitions are in memory, and there are none: give partitions, too"
            )
        if self.partitions is not None and self.buffer is not None and self.buffer > self.partitions:
            raise BadInput(
                f"buffer is {self.buffer}, and there are {self.partitions} partitions: give at most that"
            )
        if self.score in ("complex", "rotate") and self.dim % 2:
            raise BadInput(
                f"dim is {self.dim}: {self.score} has complex numbers, pairs of real ones: give an even number"
            )
        if self.all_entities and self.partitions is not None:
            raise BadInput(
                "all_entities needs every vector in memory, and partitions keep them on disk: leave one out"
            )
        if self.all_entities and self.degree_share:
            raise BadInput("all_entities draws no negatives, and degree_share says how: leave one out")
        self._check_servers()
        if self.brief_products and self.score not in ("distmult", "complex", "dot"):
            asked = "precision is mixed" if self.precision == "mixed" else "products is bf16"
            raise BadInput(
                f"{asked}, and {self.score} is a distance, which is too small a difference of products for it: leave it out"
            )
        if self.adversarial and self.loss != "logistic":
            raise BadInput(f"adversarial is for the loss logistic, and loss is {self.loss}: leave it out")
        if self.loss == "margin" and self.margin == 0:
            raise BadInput("margin is 0, and the loss margin would learn nothing: give one, such as 1")
        if self.unit_entities and self.score not in ("transe", "transe-l1"):
            raise BadInput(f"unit_entities is for transe, and score is {self.score}: leave it out")

    def _check_servers(self) -> None:
        if self.servers == 1:
            return
        for name, why in (
            ("exact", "which of several servers is first is not to be told"),
            ("all_entities", "each of several servers has a part of the vectors"),
        ):
            if getattr(self, name):
                raise BadInput(f"servers is {self.servers}, and {name} is for one: {why}; leave one out")
        if self.optimizer != "adagrad":
            raise BadInput(
                f"several servers add up Adagrad's sums, and optimizer is {self.optimizer}: choose adagrad, or one server"
            )
        if self.order != "comet":
            raise BadInput(f"order is for one server, and servers is {self.servers}: leave one out")

    def lr_in(self, epoch: int) -> float:
        """The learning rate of an epoch, counted from 0."""
        return self.lr * self.lr_decay**epoch

    def for_triples(self, count: int) -> "EmbedOptions":
        """The options for so many training triples: a batch has no more chunks than they fill, and takes no memory for more."""
        most = max(1, count)
        filled = most if self.chunk >= most else -(-most // self.chunk) * self.chunk
        return replace(self, batch=min(self.batch, filled))

    @property
    def brief_products(self) -> bool:
        """Whether products of matrices take bfloat16."""
        return self.products == "bf16" or self.precision == "mixed"

    @property
    def number_bytes(self) -> int:
        """Bytes of a number of the entities' tables."""
        return 2 if self.precision == "bf16" else 4

    def as_json(self) -> dict[str, Any]:
        """As `config.json` keeps them."""
        return {each.name: getattr(self, each.name) for each in fields(EmbedOptions)}


@dataclass(frozen=True, kw_only=True)
class EmbedSession:
    """Where a run is carried out and saved: nothing of it changes what is learnt, and the next may be another."""

    cluster: str | None = same_option(Session, "cluster")
    memory: str | None = same_option(Session, "memory")
    scratch: str | Path | None = _pipeline(
        None, "Directory for partitions on disk.", unset="the run's, or the system's for temporary files"
    )
    out: str | Path | None = same_option(Session, "out")
    resume: bool = same_option(Session, "resume")
    overwrite: bool = same_option(Session, "overwrite")
    checkpoint_every: float = same_option(Session, "checkpoint_every")
