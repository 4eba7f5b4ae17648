"""Options: how a run trains."""

import math
from dataclasses import dataclass

from siafu.base.errors import BadInput
from siafu.weights.policy import POLICIES

MODES = ("sync", "pipe", "async")
LAMBDAS = ("off", "local", "aws")
OPTIMIZERS = ("adam", "adamw", "sgd")
_COUNTS = (
    "epochs",
    "evaluate_every",
    "patience",
    "servers",
    "intervals",
    "weight_servers",
    "update_every",
)


@dataclass(frozen=True, slots=True)
class Options:
    """How to train; see `siafu.train` for the fields. They decide a run's every number, but for `epochs`, its length."""

    epochs: int
    lr: float
    weight_decay: float
    decay: str
    optimizer: str
    seed: int
    patience: int | None
    normalize_features: bool
    evaluate_every: int
    mode: str
    staleness: int
    servers: int
    intervals: int | None
    partition: str
    weights: str
    weight_servers: int
    update_every: int | None
    exact_above: float | None
    lambdas: str = "off"
    lambda_count: int | str | None = None

    @classmethod
    def to_measure(cls, epochs: int, intervals: int | None, *, mode: str = "pipe") -> "Options":
        """Where only the epochs' time counts: one server, and an evaluation after the last epoch."""
        return cls(
            epochs=epochs,
            lr=0.01,
            weight_decay=0.0,
            decay="all",
            optimizer="adam",
            seed=0,
            patience=None,
            normalize_features=False,
            evaluate_every=epochs,
            mode=mode,
            staleness=0,
            servers=1,
            intervals=intervals,
            partition="auto",
            weights="stash",
            weight_servers=1,
            update_every=None,
            exact_above=None,
        )

    def __post_init__(self) -> None:
        for name in _COUNTS:
            self._check_whole(name, least=1)
        self._check_whole("staleness", least=0)
        self._check_whole("seed", least=0)
        if self.seed >= 2**63:
            raise BadInput(f"seed is {self.seed}: give a whole number below 2**63")
        if not (self.lr > 0 and math.isfinite(self.lr)):
            raise BadInput(f"lr is {self.lr}: give a learning rate above 0")
        if not (self.weight_decay >= 0 and math.isfinite(self.weight_decay)):
            raise BadInput(f"weight_decay is {self.weight_decay}: give a number from 0 up")
        if self.decay not in ("all", "first"):
            raise BadInput(f"decay is {self.decay!r}: choose all (parameters) or first (the first layer's)")
        if self.optimizer not in OPTIMIZERS:
            raise BadInput(f"unknown optimizer {self.optimizer!r}: choose one of {', '.join(OPTIMIZERS)}")
        self._check_lambdas()
        if self.mode not in MODES:
            raise BadInput(f"unknown mode {self.mode!r}: choose one of {', '.join(MODES)}")
        if self.weights not in POLICIES:
            raise BadInput(f"unknown weight policy {self.weights!r}: choose one of {', '.join(POLICIES)}")
        self._check_asynchrony()

    def _check_whole(self, name: str, *, least: int) -> None:
        value = getattr(self, name)
        if value is not None and (not isinstance(value, int) or value < least):
            raise BadInput(f"{name} is {value}: give a whole number from {least} up")

    def _check_lambdas(self) -> None:
        count = self.lambda_count
        if count is not None and self.lambdas == "off":
            raise BadInput(
                "lambda_count says how many Lambdas there are, and lambdas is off: choose local or aws"
            )
        if isinstance(count, str) and count != "auto":
            raise BadInput(f"lambda_count is {count!r}: give a whole number from 1 up, or auto")
        if not isinstance(count, str):
            self._check_whole("lambda_count", least=1)

    def _check_asynchrony(self) -> None:
        if self.exact_above is not None and not 0 <= self.exact_above <= 1:
            raise BadInput(f"exact_above is {self.exact_above}: give a share of right vertices, from 0 to 1")
        if self.mode == "async":
            return
        for name, unset in (("staleness", 0), ("update_every", None), ("exact_above", None)):
            if getattr(self, name) != unset:
                raise BadInput(
                    f"{name} is for mode async, and mode is {self.mode}: leave it out, or choose async"
                )
