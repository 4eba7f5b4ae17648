"""Optimizers: from one version of the weights to the next, bit for bit as torch.optim goes, in new tensors.

`step` is a pure function: weights, gradients and state in, weights and state out, nothing changed in place.
Parameters go by name and each by itself, so any subset of a model's can live on a weight server of its own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from siafu.base.errors import BadInput
from siafu.weights.groups import GroupRates
from siafu.weights.row_rules import adagrad, sparse_adam

Weights = Mapping[str, Tensor]
"""Parameters by name. The tensors belong to a version, and versions do not change."""

State = Mapping[str, Tensor]
"""An optimizer's memory, as a checkpoint holds it: "PARAMETER.SLOT", the slots named as torch.optim's."""


@dataclass(frozen=True, slots=True)
class Follows:
    """How a buffer follows the statistics of the epochs, as torch's norms keep it.

    momentum: share of an epoch's in the next value; None: the buffer is the mean of all, or a count
    count:    name of the buffer that counts epochs; None: this is it
    calls:    how often an epoch moves it
    """

    momentum: float | None = None
    count: str | None = None
    calls: int = 1

    def next(self, name: str, came: Weights, weights: Weights) -> Tensor:
        """The next value of the buffer; came: an epoch's statistics, of all calls together, by the buffers' names."""
        buffer, found = weights[name], came[name]
        if self.momentum is not None:
            return found * self.momentum + buffer * (1 - self.momentum) ** self.calls
        if self.count is None:
            return buffer + found
        calls = float(came[self.count])
        share = 1.0 / (float(weights[self.count]) + calls)
        return found * share + buffer * (1 - share * calls)


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of an optimizer.

    optimizer:    sgd, adam or adamw
    lr:           learning rate
    weight_decay: of each parameter by name; those that are not in it have none
    betas, eps:   Adam's, and of no effect for sgd
    running:      buffers that follow statistics, by name: no optimizer's, but made with every version
    groups:       number of each parameter's group, by name, where the run decides every update's rates
    clip:         bound of the norm of all parameters' gradients together; None: there is none
    row_rules:    of `ROW_RULES`, by the names of parameters with a row for each vertex that one of them updates
    """

    optimizer: str
    lr: float
    weight_decay: Mapping[str, float] = field(default_factory=dict)
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    running: Mapping[str, Follows] = field(default_factory=dict)
    groups: Mapping[str, int] = field(default_factory=dict)
    clip: float | None = None
    row_rules: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.optimizer not in RULES:
            raise BadInput(f"unknown optimizer {self.optimizer!r}: choose one of {', '.join(RULES)}")

    def rule_of(self, name: str) -> "Rule":
        """How a parameter is updated."""
        found = self.row_rules.get(name)
        return RULES[self.optimizer] if found is None else ROW_RULES[found]

    def of(self, name: str, rates: tuple[float, ...]) -> tuple["Settings", float]:
        """Settings for a parameter, and its weight decay; rates: of all groups, as `GroupRates` has them."""
        if not rates:
            return self, self.weight_decay.get(name, 0.0)
        found = GroupRates.of(rates, self.groups[name])
        return replace(self, lr=found.lr, betas=(found.beta1, found.beta2)), found.weight_decay


def check_state(state: State, weights: Weights, settings: Settings, *, updated: bool) -> None:
    """Refuse, with a ValueError, a state that `step` did not make for these weights.

    updated: each of the weights has been updated; else some may have no state yet
    """
    learnt = {name: weight for name, weight in weights.items() if name not in settings.running}
    known = {
        f"{name}.{slot}": (weight, slot)
        for name, weight in learnt.items()
        for slot in settings.rule_of(name).slots
    }
    if unknown := sorted(state.keys() - known.keys()):
        rule = settings.row_rules.get(unknown[0].rpartition(".")[0], settings.optimizer)
        raise ValueError(f"the optimizer's state has {unknown[0]!r}, which {rule} does not know")
    begun = {key.rpartition(".")[0] for key in state}
    for key, (weight, slot) in known.items():
        if key in state:
            _check_slot(key, state[key], weight, slot)
        elif updated or key.rpartition(".")[0] in begun:
            raise ValueError(f"the optimizer's state lacks {key!r}")


def _check_slot(key: str, found: Tensor, weight: Tensor, slot: str) -> None:
    is_step = slot == "step"
    shape, dtype = (torch.Size(), torch.float32) if is_step else (weight.shape, weight.dtype)
    if found.shape != shape or found.dtype != dtype:
        raise ValueError(f"{key!r} of the optimizer's state is not of shape {list(shape)} and {dtype}")
    if is_step and not 1 <= found.item() < float("inf"):
        raise ValueError(f"{key!r} of the optimizer's state is {found.item()}, which is no number of steps")


@torch.no_grad()
def step(
    weights: Weights, gradients: Weights, state: State, settings: Settings, rates: tuple[float, ...] = ()
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The next weights and state. A parameter without a gradient keeps its tensor and its state as they are.

    rates: of this step, for each group of parameters (`GroupRates`); (): those of the settings
    """
    next_weights, next_state = dict(weights), dict(state)
    for name, gradient in gradients.items():
        weight = _weight_of(name, gradient, weights)
        if name in settings.running:
            next_weights[name] = settings.running[name].next(name, gradients, weights)
            continue
        rule = settings.rule_of(name)
        slots = {slot: state[f"{name}.{slot}"] for slot in rule.slots if f"{name}.{slot}" in state}
        how, decay = settings.of(name, rates)
        next_weights[name], remembered = rule.update(weight, gradient, slots, decay, how)
        next_state |= {f"{name}.{slot}": tensor for slot, tensor in remembered.items()}
    return next_weights, next_state


def _weight_of(name: str, gradient: Tensor, weights: Weights) -> Tensor:
    if name not in weights:
        raise ValueError(f"a gradient came for {name!r}, which is not among the weights")
    weight = weights[name]
    if (gradient.shape, gradient.dtype) != (weight.shape, weight.dtype):
        raise ValueError(
            f"the gradient of {name!r} is {gradient.dtype} {list(gradient.shape)}, "
            f"the weight {weight.dtype} {list(weight.shape)}"
        )
    return weight


Slots = dict[str, Tensor]
_Update = Callable[[Tensor, Tensor, Slots, float, Settings], tuple[Tensor, Slots]]


def _sgd(weight: Tensor, gradient: Tensor, _: Slots, decay: float, how: Settings) -> tuple[Tensor, Slots]:
    return weight.add(_decayed(gradient, weight, decay), alpha=-how.lr), {}


def _adam(
    weight: Tensor, gradient: Tensor, slots: Slots, decay: float, how: Settings
) -> tuple[Tensor, Slots]:
    return _moments(weight, _decayed(gradient, weight, decay), slots, how)


def _adamw(
    weight: Tensor, gradient: Tensor, slots: Slots, decay: float, how: Settings
) -> tuple[Tensor, Slots]:
    shrunk = weight.mul(1 - how.lr * decay) if decay != 0 else weight
    return _moments(shrunk, gradient, slots, how)


def _decayed(gradient: Tensor, weight: Tensor, decay: float) -> Tensor:
    """Weight decay as the gradient of a penalty."""
    return gradient.add(weight, alpha=decay) if decay != 0 else gradient


def _moments(weight: Tensor, gradient: Tensor, slots: Slots, settings: Settings) -> tuple[Tensor, Slots]:
    """Adam's step. The order of operations is that of torch's single-tensor form, since each one rounds."""
    beta1, beta2 = settings.betas
    slots = slots or {
        "step": torch.tensor(0.0, dtype=torch.float32),
        "exp_avg": torch.zeros_like(weight),
        "exp_avg_sq": torch.zeros_like(weight),
    }
    count = slots["step"] + 1
    mean = slots["exp_avg"].lerp(gradient, 1 - beta1)
    square = slots["exp_avg_sq"].mul(beta2).addcmul_(gradient, gradient, value=1 - beta2)

    steps = count.item()
    step_size = settings.lr / (1 - beta1**steps)
    spread = square.sqrt().div_((1 - beta2**steps) ** 0.5).add_(settings.eps)
    updated = weight.addcdiv(mean, spread, value=-step_size)
    return updated, {"step": count, "exp_avg": mean, "exp_avg_sq": square}


@dataclass(frozen=True, slots=True)
class Rule:
    """One optimizer.

    update: from (weight, gradient, slots, weight decay, settings) to the next weight and slots; it changes nothing in place
    slots:  the names of what it remembers of a parameter: "step", a count in float32, or a tensor of the weight's shape
    """

    update: _Update
    slots: tuple[str, ...]


_MOMENTS = ("step", "exp_avg", "exp_avg_sq")
RULES = {"adam": Rule(_adam, _MOMENTS), "adamw": Rule(_adamw, _MOMENTS), "sgd": Rule(_sgd, ())}
"""Optimizers of all parameters, by the names that `siafu.train(optimizer=NAME)` takes."""

ROW_RULES = {"sparse_adam": Rule(sparse_adam, _MOMENTS), "adagrad": Rule(adagrad, ("step", "sum"))}
"""Those of parameters with a row for each vertex, by the names that `row_optimizer` takes."""
