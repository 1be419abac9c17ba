from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from tasklm.encoders.base import Shape
from tasklm.encoders.bert import Bert
from tasklm.errors import RecipeError, RunError
from tasklm.recipe.model_sections import OPTIMISERS, Moments
from tasklm.train.optim import muon
from tasklm.train.optim.muon import Muon
from tasklm.train.optim.optimizers import Rule, hidden_matrices, layers_above, make_optimiser


class Whole(nn.Module):
    """Everything of a stage: an encoder with a last norm, an objective with a generator, a head."""

    def __init__(self, layers: int = 3) -> None:
        super().__init__()
        shape = Shape(11, layers, 8, 2, 16, 6)
        self.encoder = Bert(shape)
        self.encoder.last_norm = nn.LayerNorm(8)  # after the layers
        self.objective = nn.Module()
        self.objective.generator = Bert(Shape(11, 1, 4, 2, 8, 6))
        self.head = nn.ModuleList([nn.Linear(8, 3)])


def whole() -> Whole:
    torch.manual_seed(5)
    module = Whole()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) / 10)  # no tensor stays at 0 or at 1
    return module


def weights(module: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in module.named_parameters()}


def draw_gradients(module: nn.Module, seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    return {
        name: parameter.grad.clone()
        for name, parameter in module.named_parameters()
        if parameter.grad is not None
    }


def plain(
    name: str,
    start: Tensor,
    gradients: list[Tensor],
    rates: list[float],
    decay: float,
    betas: tuple[float, float] | None = None,
    epsilon: float = 1e-6,
) -> Tensor:
    """One tensor in float64: AdamW, or LAMB as algorithm 2 of arXiv 1904.00962 has it."""
    beta1, beta2 = betas or ((0.9, 0.98) if name == "adamw" else (0.9, 0.999))
    weight = start.double()
    m, v = torch.zeros_like(weight), torch.zeros_like(weight)
    for t, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), start=1):
        g = gradient.double()
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        r = (m / (1 - beta1**t)) / ((v / (1 - beta2**t)).sqrt() + epsilon)
        step = r + decay * weight
        if name == "lamb":
            size = math.sqrt(float((weight * weight).sum()))
            length = math.sqrt(float((step * step).sum()))
            step = step * (size / length if size > 0 and length > 0 else 1.0)
        weight = weight - rate * step
    return weight


@pytest.mark.parametrize("name", ["adamw", "lamb"])
def test_steps_are_those_of_a_plain_loop(name: str) -> None:
    module = whole()
    with torch.no_grad():
        module.head[0].bias.zero_()  # of norm 0: the ratio is 1
    start, history, shares = weights(module), [], [0.5, 1.0, 0.75, 0.1]
    optimiser = make_optimiser(module, Rule(name, 0.02, 0.3))
    for step, share in enumerate(shares):
        history.append(draw_gradients(module, step))
        optimiser.step(share)
        optimiser.zero_grad()
    assert all(parameter.grad is None for parameter in module.parameters())
    for key, weight in weights(module).items():
        decay = 0.3 if start[key].ndim >= 2 else 0.0
        expected = plain(
            name,
            start[key],
            [gradients[key] for gradients in history],
            [0.02 * share for share in shares],
            decay,
        )
        torch.testing.assert_close(weight.double(), expected, rtol=2e-5, atol=2e-6, msg=key)


@pytest.mark.parametrize("name", ["adamw", "lamb"])
def test_the_numbers_of_the_recipe_are_those_of_the_steps(name: str) -> None:
    module = whole()
    start, history = weights(module), []
    moments = Moments(beta1=0.5, beta2=0.7, epsilon=0.1)
    optimiser = make_optimiser(module, Rule(name, 0.02, 0.0, moments=moments))
    for step in range(3):
        history.append(draw_gradients(module, step))
        optimiser.step(1.0)
        optimiser.zero_grad()
    for key, weight in weights(module).items():
        expected = plain(
            name,
            start[key],
            [gradients[key] for gradients in history],
            [0.02] * 3,
            0.0,
            (0.5, 0.7),
            0.1,
        )
        torch.testing.assert_close(weight.double(), expected, rtol=2e-5, atol=2e-6, msg=key)


def test_the_momentum_of_the_recipe_is_that_of_muon() -> None:
    first, second = whole(), whole()
    for module, momentum in ((first, 0.95), (second, 0.0)):
        optimiser = make_optimiser(
            module, Rule("muon", 0.02, 0.0, moments=Moments(momentum=momentum))
        )
        for step in range(2):
            draw_gradients(module, step)
            optimiser.step(1.0)
    matrix = sorted(hidden_matrices(first))[0]
    assert not torch.equal(weights(first)[matrix], weights(second)[matrix])


def test_lamb_has_ratio_1_where_a_norm_is_0_and_counts_steps_for_each_parameter() -> None:
    module = nn.ParameterDict({name: torch.ones(2, 2) for name in ("still", "late")})
    optimiser = make_optimiser(module, Rule("lamb", 0.1, 0.0))
    module["still"].grad = torch.zeros(2, 2)
    optimiser.step(1.0)
    assert torch.equal(module["still"].detach(), torch.ones(2, 2)) and torch.equal(
        module["late"].detach(), torch.ones(2, 2)
    )
    module["late"].grad = torch.full((2, 2), 3.0)
    optimiser.step(1.0)
    torch.testing.assert_close(
        module["late"].detach(),
        plain("lamb", torch.ones(2, 2), [torch.full((2, 2), 3.0)], [0.1], 0.0).float(),
    )


@pytest.mark.parametrize("name", OPTIMISERS)
def test_decay_spares_biases_and_norms(name: str) -> None:
    module = whole()
    start = weights(module)
    optimiser = make_optimiser(module, Rule(name, 0.1, 0.5))
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimiser.step(0.5)
    for key, weight in weights(module).items():
        ratio = 0.5 if name == "lamb" else 1.0  # LAMB's ratio ‖w‖/‖λw‖ takes λ out again
        kept = 1 - 0.05 * 0.5 / ratio if weight.ndim >= 2 else 1.0
        torch.testing.assert_close(weight, kept * start[key], msg=key)


@pytest.mark.parametrize("name", OPTIMISERS)
@pytest.mark.parametrize("steps_before", [0, 2])
def test_a_skipped_step_changes_no_bit(name: str, steps_before: int) -> None:
    module = whole()
    optimiser = make_optimiser(module, Rule(name, 0.02, 0.3, 0.9))
    for step in range(steps_before):
        draw_gradients(module, step)
        optimiser.step(1.0)
    before = weights(module)
    state = {key: tensor.clone() for key, tensor in optimiser.tensors().items()}
    for parameter in module.parameters():
        parameter.grad = torch.full_like(parameter, float("nan"))
    optimiser.step(1.0, torch.tensor(1.0))
    assert all(torch.equal(weight, before[key]) for key, weight in weights(module).items())
    assert optimiser.tensors().keys() == state.keys()
    assert all(torch.equal(tensor, state[key]) for key, tensor in optimiser.tensors().items())


@pytest.mark.parametrize("name", OPTIMISERS)
def test_after_a_skipped_step_training_goes_on_as_without_it(name: str) -> None:
    skipping, straight = whole(), whole()
    one, other = (make_optimiser(module, Rule(name, 0.02, 0.3)) for module in (skipping, straight))
    for step in range(4):
        draw_gradients(skipping, step)
        one.step(1.0, torch.tensor(float(step == 1)))
        if step != 1:
            draw_gradients(straight, step)
            other.step(1.0)
    assert all(
        torch.equal(weight, weights(straight)[key]) for key, weight in weights(skipping).items()
    )


@pytest.mark.parametrize("name", OPTIMISERS)
def test_state_goes_by_name_through_other_groups_bit_for_bit(name: str) -> None:
    first, second = whole(), whole()
    one = make_optimiser(first, Rule(name, 0.02, 0.3, 0.8))
    other = make_optimiser(second, Rule(name, 0.02, 0.0))
    draw_gradients(first, 1)
    one.step(1.0)
    saved = {key: tensor.clone() for key, tensor in one.tensors().items()}
    part = "momentum_buffer" if name in ("muon", "sgd") else "exp_avg"
    rest = "momentum_buffer" if name == "sgd" else "exp_avg"
    assert f"encoder.layers.0.up.weight/{part}" in saved and f"head.0.bias/{rest}" in saved
    other.load(saved)
    assert all(torch.equal(tensor, saved[key]) for key, tensor in other.tensors().items())
    again = make_optimiser(second, Rule(name, 0.02, 0.3, 0.8))
    again.load(saved)
    second.load_state_dict(first.state_dict())
    for module, optimiser in ((first, one), (second, again)):
        draw_gradients(module, 2)
        optimiser.step(0.5)
    assert all(torch.equal(weight, weights(first)[key]) for key, weight in weights(second).items())


def test_state_that_does_not_fit_is_refused_and_nothing_is_loaded() -> None:
    module = whole()
    optimiser = make_optimiser(module, Rule("adamw", 0.02, 0.3))
    strange = {key: torch.ones_like(tensor) for key, tensor in optimiser.tensors().items()}
    strange["head.0.bias/exp_avg"] = torch.ones(4)
    with pytest.raises(
        RunError, match=r"head.0.bias/exp_avg has shape \(4,\) instead of \(3,\).*recipe"
    ):
        optimiser.load(strange)
    assert all(not tensor.any() for tensor in optimiser.tensors().values())
    with pytest.raises(RunError, match=r"is missing and \d+ more"):
        optimiser.load(make_optimiser(whole(), Rule("muon", 0.02, 0.3)).tensors())


def test_layers_above_by_hand() -> None:
    heights = layers_above([name for name, _ in whole().named_parameters()])
    expected = {
        "encoder.token.weight": 3,
        "encoder.position.weight": 3,
        "encoder.norm.bias": 3,
        "encoder.layers.0.up.weight": 2,
        "encoder.layers.1.norm.bias": 1,
        "encoder.layers.2.query_key_value.bias": 0,
        "encoder.last_norm.weight": 0,
        "objective.generator.layers.0.up.weight": 0,
        "head.0.weight": 0,
    }
    assert {name: heights[name] for name in expected} == expected
    inner = [
        "encoder.token",
        "encoder.layers.10.w",
        "a.encoder.token",
        "a.encoder.layers.0.w",
        "a.encoder.layers.1.w",
    ]
    assert layers_above(inner) == dict(zip(inner, (11, 0, 2, 1, 0), strict=True))
    assert layers_above(["encoder.token", "encoder.shared.up.weight", "head"]) == {
        "encoder.token": 1,
        "encoder.shared.up.weight": 0,
        "head": 0,
    }


@pytest.mark.parametrize("name", OPTIMISERS)
def test_lower_layers_move_less(name: str) -> None:
    full, decayed = whole(), whole()
    start = weights(full)
    heights = layers_above(list(start))
    for module, layer_decay in ((full, 1.0), (decayed, 0.5)):
        draw_gradients(module, 1)
        make_optimiser(module, Rule(name, 0.25, 0.0, layer_decay)).step(1.0)
    for key, weight in weights(decayed).items():
        expected = (weights(full)[key] - start[key]) * 0.5 ** heights[key]
        torch.testing.assert_close(weight - start[key], expected, rtol=1e-4, atol=1e-5, msg=key)


def test_muon_moves_the_hidden_matrices_and_adamw_the_rest() -> None:
    module, other = whole(), whole()
    maps = ("query_key_value", "attention_out", "up", "down")
    layers = [f"encoder.layers.{layer}" for layer in range(3)] + ["objective.generator.layers.0"]
    assert hidden_matrices(module) == {f"{layer}.{map}.weight" for layer in layers for map in maps}
    for each, name in ((module, "muon"), (other, "adamw")):
        draw_gradients(each, 1)
        make_optimiser(each, Rule(name, 0.02, 0.3)).step(1.0)
    for key, weight in weights(module).items():
        assert torch.equal(weight, weights(other)[key]) == (key not in hidden_matrices(module)), key


def test_layers_with_shared_weights_are_hidden_and_a_single_map_is_not() -> None:
    module = nn.Module()
    module.encoder = nn.ModuleDict(
        {"project": nn.Linear(2, 4), "shared": nn.ModuleDict({"up": nn.Linear(4, 4)})}
    )
    module.shared = nn.Linear(4, 2)
    assert hidden_matrices(module) == {"encoder.shared.up.weight"}


def test_a_step_of_muon_is_the_gradient_with_its_singular_values_made_near_1() -> None:
    module = whole()
    start = weights(module)
    gradients = draw_gradients(module, 1)
    make_optimiser(module, Rule("muon", 0.1, 0.0)).step(0.5)
    for key in ("encoder.layers.1.up.weight", "encoder.layers.2.query_key_value.weight"):
        u, _, v = torch.linalg.svd(gradients[key], full_matrices=False)
        scale = (
            0.05 * 0.2 * math.sqrt(max(start[key].shape))
        )  # the step's root mean square is then 0.2 of the rate, about Adam's
        turned = u.T @ (start[key] - weights(module)[key]) @ v.T / scale
        assert ((turned.diagonal() > 0.6) & (turned.diagonal() < 1.3)).all()
        assert (turned - turned.diagonal().diag()).abs().max() < 0.05


def test_muon_follows_torchs_own_which_takes_one_matrix_at_a_time() -> None:
    torch.manual_seed(3)
    starts = [torch.randn(shape) for shape in ((6, 9), (9, 6), (6, 9), (5, 5))]
    ours, theirs = ([nn.Parameter(start.clone()) for start in starts] for _ in range(2))
    one = Muon([{"params": ours, "weight_decay": 0.1}], 0.02)
    other = torch.optim.Muon(
        theirs, lr=0.02, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw"
    )
    for _ in range(4):
        for mine, its in zip(ours, theirs, strict=True):
            mine.grad = torch.randn_like(mine)
            its.grad = mine.grad.clone()
        one.step()
        other.step()
    for start, mine, its in zip(starts, ours, theirs, strict=True):
        assert (mine - its).abs().max() < 0.02 * (
            mine - start
        ).abs().max()  # products are rounded to 16 bits
        torch.testing.assert_close(
            one.state[mine]["momentum_buffer"], other.state[its]["momentum_buffer"]
        )


@pytest.mark.parametrize("units", [False, True])
def test_muon_computes_in_bf16_only_where_the_cpu_has_units_for_it(
    units: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(muon, "cpu_computes_in_bf16", lambda: units)
    matrices = torch.randn(2, 6, 9, generator=torch.Generator().manual_seed(1))
    found = muon.orthogonal(matrices)
    assert found.dtype == (torch.bfloat16 if units else torch.float32)
    for one, given in zip(found.float(), matrices, strict=True):
        u, _, v = torch.linalg.svd(given, full_matrices=False)
        values = (u.T @ one @ v.T).diagonal()
        assert ((values > 0.6) & (values < 1.3)).all()


def test_muon_leaves_alone_what_has_no_gradient() -> None:
    moved, kept = nn.Parameter(torch.ones(3, 4)), nn.Parameter(torch.ones(3, 4))
    moved.grad = torch.randn(3, 4)
    Muon([{"params": [kept, moved], "weight_decay": 0.5}], 0.1).step()
    assert torch.equal(kept, torch.ones(3, 4)) and not torch.equal(moved, torch.ones(3, 4))


def test_what_cannot_be_done_is_told_with_the_way_out() -> None:
    with pytest.raises(RecipeError, match="choose from adamw, lamb, muon"):
        make_optimiser(whole(), Rule("adam", 0.1, 0.0))
    flat = nn.Module()
    flat.encoder = nn.LSTM(2, 2)
    with pytest.raises(RecipeError, match="no hidden matrices"):
        make_optimiser(flat, Rule("muon", 0.1, 0.0))
    with pytest.raises(RecipeError, match="set layer_decay = 1"):
        make_optimiser(flat, Rule("adamw", 0.1, 0.0, 0.9))
