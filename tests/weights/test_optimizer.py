"""Optimizers, judged by torch.optim: the same bits after every step, and nothing changed in place."""

from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from siafu.base.errors import BadInput
from siafu.report.files.checkpoint import load_tensors, save_tensors
from siafu.weights.optimizer import Settings, State, check_state, step

PEERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
Named = dict[str, Tensor]

optimizers = pytest.mark.parametrize("optimizer", list(PEERS))
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["fp32", "fp64"])


def some_weights(dtype: torch.dtype = torch.float32) -> Named:
    shapes = {"convs.0.weight": (33, 17), "convs.0.bias": (17,), "convs.1.weight": (17, 5), "scale": ()}
    return {name: torch.randn(shape, dtype=dtype) for name, shape in shapes.items()}


def gradients_for(weights: Named) -> Named:
    """Of all sizes, so that every term of every formula counts somewhere."""
    return {name: torch.randn_like(w) * 10.0 ** torch.randint(-6, 3, ()) for name, w in weights.items()}


def torch_steps(weights: Named, gradients: Iterable[Named], how: Settings) -> list[Named]:
    """What torch.optim makes of the weights, after every step."""
    parameters = {name: torch.nn.Parameter(weight.clone()) for name, weight in weights.items()}
    groups = [
        {"params": [parameter], "weight_decay": how.weight_decay.get(name, 0.0)}
        for name, parameter in parameters.items()
    ]
    peer = PEERS[how.optimizer](groups, lr=how.lr, foreach=False)
    after = []
    for given_now in gradients:
        for name, parameter in parameters.items():
            gradient = given_now.get(name)
            parameter.grad = None if gradient is None else gradient.clone()
        peer.step()
        after.append({name: parameter.detach().clone() for name, parameter in parameters.items()})
    return after


class Optimizer:
    """`step` with the state kept from one call to the next."""

    def __init__(self, settings: Settings, state: State | None = None) -> None:
        self.settings = settings
        self.state: State = state or {}

    def step(self, weights: Named, gradients: Named) -> Named:
        updated, self.state = step(weights, gradients, self.state, self.settings)
        return updated


def our_steps(weights: Named, gradients: Iterable[Named], how: Settings) -> list[Named]:
    ours, after = Optimizer(how), []
    for given_now in gradients:
        weights = ours.step(weights, given_now)
        after.append(weights)
    return after


def assert_same_bits(ours: Named, theirs: Named) -> None:
    assert ours.keys() == theirs.keys()
    for name in ours:
        assert ours[name].dtype == theirs[name].dtype
        assert torch.equal(bits(ours[name]), bits(theirs[name])), name


def bits(tensor: Tensor) -> Tensor:
    """As whole numbers, which tell 0 from -0."""
    return tensor.contiguous().view(torch.int32 if tensor.dtype == torch.float32 else torch.int64)


@dtypes
@optimizers
@pytest.mark.parametrize("decay", [0.0, 5e-4])
def test_fifty_steps_are_those_of_torch_bit_for_bit(optimizer: str, dtype: torch.dtype, decay: float) -> None:
    weights = some_weights(dtype)
    how = Settings(optimizer, 0.01, dict.fromkeys(weights, decay))
    gradients = [gradients_for(weights) for _ in range(50)]
    for ours, theirs in zip(
        our_steps(weights, gradients, how), torch_steps(weights, gradients, how), strict=True
    ):
        assert_same_bits(ours, theirs)


@optimizers
def test_weight_decay_of_the_first_layer_leaves_the_others_alone(optimizer: str) -> None:
    weights = some_weights()
    first = {name: 0.5 for name in weights if name.startswith("convs.0")}
    gradients = [gradients_for(weights) for _ in range(5)]
    ours = our_steps(weights, gradients, Settings(optimizer, 0.01, first))[-1]
    assert_same_bits(ours, torch_steps(weights, gradients, Settings(optimizer, 0.01, first))[-1])
    without = our_steps(weights, gradients, Settings(optimizer, 0.01))[-1]
    assert {name for name in weights if not torch.equal(ours[name], without[name])} == set(first)


@settings(max_examples=60, deadline=None)
@given(
    optimizer=st.sampled_from(list(PEERS)),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    lr=st.floats(1e-6, 10),
    decay=st.floats(0, 2),
    shape=st.lists(st.integers(0, 9), max_size=3),
    scale=st.sampled_from([0.0, 1e-30, 1e-6, 1.0, 1e6]),
    seed=st.integers(0, 2**31),
)
def test_any_settings_and_shapes_give_the_bits_of_torch(
    optimizer: str, dtype: torch.dtype, lr: float, decay: float, shape: list[int], scale: float, seed: int
) -> None:
    random = torch.Generator().manual_seed(seed)
    weights, *gradients = (
        {"w": torch.randn(shape, dtype=dtype, generator=random) * size} for size in (1.0, *[scale] * 6)
    )
    how = Settings(optimizer, lr, {"w": decay})
    assert_same_bits(our_steps(weights, gradients, how)[-1], torch_steps(weights, gradients, how)[-1])


@optimizers
def test_a_gradient_that_lies_transposed_is_as_good(optimizer: str) -> None:
    weights = {"w": torch.randn(129, 67)}
    gradients = [{"w": torch.randn(67, 129).T} for _ in range(5)]
    plain = [{"w": gradient["w"].contiguous()} for gradient in gradients]
    how = Settings(optimizer, 0.01, {"w": 0.1})
    assert_same_bits(our_steps(weights, gradients, how)[-1], torch_steps(weights, plain, how)[-1])


@optimizers
def test_a_parameter_without_a_gradient_stays_and_counts_no_step(optimizer: str) -> None:
    weights = some_weights()
    how = Settings(optimizer, 0.01, dict.fromkeys(weights, 0.1))
    unused = {"scale": 1.0, "convs.1.weight": 0.5}
    gradients = [
        {
            name: gradient
            for name, gradient in gradients_for(weights).items()
            if torch.rand(()) >= unused.get(name, 0.0)
        }
        for _ in range(50)
    ]
    ours = our_steps(weights, gradients, how)
    assert ours[-1]["scale"] is weights["scale"]
    for mine, theirs in zip(ours, torch_steps(weights, gradients, how), strict=True):
        assert_same_bits(mine, theirs)


@optimizers
def test_nothing_is_changed_in_place(optimizer: str) -> None:
    how = Settings(optimizer, 0.1, {"convs.0.weight": 0.1})
    weights = some_weights()
    state: dict[str, Tensor] = {}
    for _ in range(3):
        gradients = gradients_for(weights)
        given_in = [weights, gradients, state]
        before = [{name: tensor.clone() for name, tensor in part.items()} for part in given_in]
        weights, state = step(weights, gradients, state, how)
        for part, copy in zip(given_in, before, strict=True):
            assert_same_bits(part, copy)


@optimizers
def test_a_model_split_over_optimizers_steps_as_one(optimizer: str) -> None:
    weights = some_weights()
    how = Settings(optimizer, 0.01, {"convs.0.weight": 0.1})
    gradients = [gradients_for(weights) for _ in range(5)]
    whole = our_steps(weights, gradients, how)[-1]
    parts: Named = {}
    for names in (["convs.0.weight", "scale"], ["convs.0.bias", "convs.1.weight"]):
        some = [{name: every[name] for name in names} for every in gradients]
        parts |= our_steps({name: weights[name] for name in names}, some, how)[-1]
    assert_same_bits(parts, whole)


@optimizers
def test_training_goes_on_from_a_checkpoint_as_if_it_had_never_stopped(
    optimizer: str, tmp_path: Path
) -> None:
    weights = some_weights()
    how = Settings(optimizer, 0.01, {"convs.0.weight": 0.1})
    gradients = [gradients_for(weights) for _ in range(8)]
    first = Optimizer(how)
    for each in gradients[:4]:
        weights = first.step(weights, each)
    save_tensors(tmp_path / "state", dict(first.state))

    second = Optimizer(how, load_tensors(tmp_path / "state")[0])
    resumed = weights
    for each in gradients[4:]:
        weights, resumed = first.step(weights, each), second.step(resumed, each)
    assert_same_bits(resumed, weights)
    assert_same_bits(dict(second.state), dict(first.state))


def test_the_state_of_another_optimizer_is_refused() -> None:
    weights = {"w": torch.ones(2)}
    adam = Optimizer(Settings("adam", 0.01))
    adam.step(weights, {"w": torch.ones(2)})
    with pytest.raises(ValueError, match=r"'w\.exp_avg', which sgd does not know"):
        check_state(adam.state, weights, Settings("sgd", 0.01), updated=True)


def test_an_unknown_optimizer_is_refused_with_the_choice() -> None:
    with pytest.raises(BadInput, match="unknown optimizer 'lion': choose one of adam, adamw, sgd"):
        Settings("lion", 0.01)


def test_new_weights_need_no_gradient_even_if_parameters_come_in() -> None:
    weights = {"w": torch.nn.Parameter(torch.ones(3))}
    assert not Optimizer(Settings("adam", 0.1)).step(weights, {"w": torch.ones(3)})["w"].requires_grad


@pytest.mark.parametrize(
    ("gradients", "message"),
    [
        ({"v": torch.ones(2, 3)}, "'v', which is not among the weights"),
        ({"w": torch.ones(1, 3)}, r"float32 \[1, 3\], the weight torch.float32 \[2, 3\]"),
        ({"w": torch.ones(2, 3, dtype=torch.float64)}, "float64"),
    ],
    ids=["name", "shape", "dtype"],
)
def test_a_gradient_that_does_not_fit_is_refused(gradients: Named, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        step({"w": torch.ones(2, 3)}, gradients, {}, Settings("sgd", 0.1))
