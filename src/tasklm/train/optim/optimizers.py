"""Optimisers: which parameters decay, how fast each layer learns, and the state by names."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from tasklm.errors import RecipeError
from tasklm.recipe.model_sections import OPTIMISERS, Moments
from tasklm.registry import nearest
from tasklm.train.named_tensors import fill
from tasklm.train.optim.adamw import FusedAdamW
from tasklm.train.optim.lamb import Lamb
from tasklm.train.optim.muon import Muon
from tasklm.train.optim.sgd import Sgd

_ENCODER = re.compile(r"(?:^|.*\.)encoder\.")  # up to the innermost encoder
# what follows it for a layer; layers that share one set of weights are one
_LAYER = re.compile(r"(?:layers\.(\d+)|shared)\.")


@dataclass(frozen=True)
class Rule:
    """The update rule of the weights."""

    name: str  # one of OPTIMISERS
    rate: float  # peak learning rate
    weight_decay: float
    # layer i learns at rate · layer_decay ** (layers above it); embeddings are one below layer 0
    layer_decay: float = 1.0
    moments: Moments = field(default_factory=Moments)
    cautious: bool = False  # decay only what the step moves towards 0

    @property
    def betas(self) -> tuple[float, float]:
        """The decays of the means of gradients and of their squares."""
        beta2 = self.moments.beta2
        if beta2 is None:
            beta2 = 0.999 if self.name == "lamb" else 0.98
        return self.moments.beta1, beta2


class Optimiser:
    """One or more torch optimisers over the parameters of one module."""

    def __init__(self, names: dict[str, nn.Parameter], parts: list[torch.optim.Optimizer]) -> None:
        self._parts = parts
        groups = itertools.chain.from_iterable(part.param_groups for part in parts)
        self._peaks = [(group, group["lr"]) for group in groups]
        self._names = names

    def step(self, share: float, skip: Tensor | None = None, divisor: Tensor | None = None) -> None:
        """Does one step at `share` of every peak rate; none if `skip` is 1 (0-dim, float).

        Gradients count as if divided by `divisor` (0-dim as well), and may be left so. AdamW,
        Muon and SGD evaluate both on the device. LAMB reads `skip` and therefore waits for it.
        """
        for group, peak in self._peaks:
            group["lr"] = peak * share
        for part in self._parts:
            if isinstance(part, (FusedAdamW, Muon, Sgd)):
                part.found_inf, part.grad_scale = skip, divisor
            elif skip is not None and bool(skip):
                continue
            elif divisor is not None:
                torch._foreach_div_(_gradients_of(part), divisor)
            part.step()

    def zero_grad(self) -> None:
        """Drops all gradients."""
        for part in self._parts:
            part.zero_grad(set_to_none=True)

    def tensors(self) -> dict[str, Tensor]:
        """The state, not copied, as 'name of the parameter/name of the state', for any groups."""
        state: dict[Tensor, dict[str, Tensor]] = {}
        for part in self._parts:
            state.update(part.state)
        tensors = {}
        for name, parameter in self._names.items():
            for kind, tensor in state[parameter].items():
                tensors[f"{name}/{kind}"] = tensor
        return tensors

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Restores the state of a checkpoint; raises RunError if names or shapes do not match."""
        fill(self.tensors(), tensors, "the optimiser")


def _gradients_of(optimiser: torch.optim.Optimizer) -> list[Tensor]:
    weights = itertools.chain.from_iterable(group["params"] for group in optimiser.param_groups)
    return [weight.grad for weight in weights if weight.grad is not None]


def make_optimiser(module: nn.Module, rule: Rule) -> Optimiser:
    """The optimiser of a rule over all parameters of a module that are trained.

    Matrices decay, biases and norms do not. Muon moves the hidden matrices, at the rate of AdamW,
    which moves the rest.
    """
    if rule.name not in OPTIMISERS:
        choices = ", ".join(OPTIMISERS) + nearest(rule.name, list(OPTIMISERS))
        raise RecipeError([f"optimiser = {rule.name!r}: choose from {choices}"])
    if rule.cautious and rule.name not in ("adamw", "muon"):
        raise RecipeError(
            [f"train.decay_cautious = true: {rule.name} does not do it; choose adamw or muon"]
        )
    names = {
        name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad
    }
    heights = dict.fromkeys(names, 0)
    if rule.layer_decay != 1.0:
        heights = layers_above(list(names))
    rates = {name: rule.rate * rule.layer_decay ** heights[name] for name in names}
    if rule.name == "lamb":
        groups = _groups(names, rates, rule)
        return Optimiser(names, [Lamb(groups, rule.rate, rule.betas, rule.moments.epsilon)])
    if rule.name == "sgd":
        groups = _groups(names, rates, rule)
        return Optimiser(names, [Sgd(groups, rule.rate, rule.moments.sgd_momentum)])
    rest, parts = names, list[torch.optim.Optimizer]()
    if rule.name == "muon":
        hidden = hidden_matrices(module)
        matrices = {name: parameter for name, parameter in names.items() if name in hidden}
        rest = {name: parameter for name, parameter in names.items() if name not in hidden}
        if not matrices:
            raise RecipeError(
                [
                    "optimiser = 'muon': this encoder has no hidden matrices to update; choose "
                    "adamw or lamb"
                ]
            )
        parts.append(Muon(_groups(matrices, rates, rule), rule.rate, rule.moments.momentum))
    if rest:
        groups = _groups(rest, rates, rule)
        parts.append(FusedAdamW(groups, rule.rate, rule.betas, rule.moments.epsilon))
    return Optimiser(names, parts)


def _groups(
    names: dict[str, nn.Parameter], rates: dict[str, float], rule: Rule
) -> list[dict[str, Any]]:
    """Parameter groups, one for each rate and decay."""
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in names.items():
        decay = rule.weight_decay if parameter.ndim >= 2 else 0.0
        groups.setdefault((rates[name], decay), []).append(parameter)
    return [
        {"params": parameters, "lr": rate, "weight_decay": decay, "cautious": rule.cautious}
        for (rate, decay), parameters in groups.items()
    ]


def layers_above(names: list[str]) -> dict[str, int]:
    """The number of layers of its encoder above each parameter; names are in the module's order.

    Zero for the top layer, for what follows the layers (a last norm) and for everything outside an
    encoder.
    """
    places = [_place(name) for name in names]
    layers: dict[str, int] = {}  # of each encoder
    last: dict[str, int] = {}  # position of the last parameter of each encoder's layers
    for position, (encoder, layer) in enumerate(places):
        if layer is not None:
            layers[encoder], last[encoder] = max(layers.get(encoder, 0), layer + 1), position
    heights = {}
    for position, (name, (encoder, layer)) in enumerate(zip(names, places, strict=True)):
        if encoder and encoder not in layers:
            raise RecipeError(
                [f"layer_decay is not 1, but '{encoder[:-1]}' has no layers: set layer_decay = 1"]
            )
        if layer is not None:
            heights[name] = layers[encoder] - 1 - layer
        elif encoder and position < last[encoder]:
            heights[name] = layers[encoder]
        else:
            heights[name] = 0
    return heights


def _place(name: str) -> tuple[str, int | None]:
    """The encoder of a parameter ("": it is in none) and its layer (None: it is in none)."""
    inside = _ENCODER.match(name)
    if inside is None:
        return "", None
    layer = _LAYER.match(name, inside.end())
    if layer is None:
        return inside.group(), None
    return inside.group(), int(layer.group(1) or 0)


def hidden_matrices(module: nn.Module) -> set[str]:
    """The names of the weights of linear maps inside layers.

    These are in any list of an encoder, in `layers` or in `shared`.
    """
    matrices = set()
    for path, stack in module.named_modules():
        *above, own = path.split(".")
        is_list = isinstance(stack, nn.ModuleList) and (own == "layers" or "encoder" in above)
        if not is_list and own != "shared":
            continue
        for name, part in stack.named_modules(prefix=path):
            if isinstance(part, nn.Linear) and part is not stack:
                matrices.add(f"{name}.weight")
    return matrices
