"""Encoders in the names of Hugging Face's models (transformers 5), both ways.

bert ↔ BertModel, or ElectraModel where the embeddings have a width of their own; roberta ↔ the same
with another ε, which is also what RobertaModel and its relatives are read as; modern ↔
ModernBertModel with global attention in every layer, modernbert ↔ with the published local layers;
albert ↔ AlbertModel. The same with the prediction head of masked language modelling: …ForMaskedLM.
Features that tasklm's encoders lack are refused, never silently dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from tasklm.encoders.base import Shape
from tasklm.encoders.checkpoints.hub_configs import family_of, model_type, more_of
from tasklm.encoders.checkpoints.hub_families import FAMILIES, Family
from tasklm.encoders.layers.embeddings import SEGMENTS
from tasklm.errors import DataError

State = dict[str, Tensor]


def to_hugging_face(
    name: str, shape: Shape, state: Mapping[str, Tensor], head: Mapping[str, Tensor] | None = None
) -> tuple[dict[str, Any], State]:
    """Configuration and weights of the encoder called `name`, for config.json and safetensors.

    With the weights of a prediction head (dense, norm, bias) they are a …ForMaskedLM's. The numbers
    of special tokens are left empty; whoever knows the vocabulary writes pad_token_id and its like
    over them.
    """
    kind = model_type(name, shape)
    family = FAMILIES[kind]
    numbers = {**shape.to_dict(), "embedding": shape.token_width}
    suffix, prefix = "Model", ""
    if head is not None:
        suffix, prefix = "ForMaskedLM", family.prefix
    config: dict[str, Any] = {
        "model_type": kind,
        "architectures": [family.title + suffix],
        **{theirs: numbers[ours] for ours, theirs in family.numbers.items()},
        **family.fixed,
        **more_of(name, shape),
    }
    modules = _modules(family, shape)
    weights: State = {}
    for key, tensor in state.items():
        module, _, leaf = key.rpartition(".")
        if module not in modules:
            raise DataError(
                f"the encoder {name!r} has no weight {key!r}",
                remedy="Give the encoder's own state, without the head's.",
            )
        for theirs, part in zip(modules[module], tensor.chunk(len(modules[module])), strict=True):
            weights[f"{prefix}{theirs}.{leaf}"] = part.clone()
    if head is None:
        return config, weights
    weights |= _head_to(family, head)
    if kind == "modernbert":
        config |= {"classifier_bias": "dense.bias" in head, "norm_bias": "norm.bias" in head}
        if "norm.bias" in head:
            weights |= _zero_biases(weights)
    return config, weights


def from_hugging_face(
    config: Mapping[str, Any], state: Mapping[str, Tensor]
) -> tuple[str, Shape, State]:
    """Our name, shape and weights of a model in Hugging Face's names, without heads and pooler."""
    family, name = family_of(config)
    numbers: dict[str, Any] = {ours: config[theirs] for ours, theirs in family.numbers.items()}
    if numbers.get("embedding") == numbers["width"]:
        numbers["embedding"] = 0
    skipped = 0  # rows of padding, and of nothing
    if family.counts_from_pad:
        skipped = config.get("pad_token_id", 1) + 1
    shape = Shape.from_dict({**numbers, "positions": numbers["positions"] - skipped})
    inner = {key.removeprefix(family.prefix): tensor for key, tensor in state.items()}
    weights: State = {}
    for ours, theirs in _modules(family, shape).items():
        for leaf in ("weight", "bias"):
            parts = [inner[f"{module}.{leaf}"] for module in theirs if f"{module}.{leaf}" in inner]
            if leaf == "bias" and family.encoder == "modern":
                _check_zero(parts, ours)
            elif len(parts) == len(theirs):
                weights[f"{ours}.{leaf}"] = torch.cat(parts)
            elif parts or leaf == "weight":
                raise DataError(
                    f"the weights lack {theirs[0]}.{leaf}",
                    remedy="Give all weights of the model, and its own configuration.",
                )
    if family.counts_from_pad:
        weights["position.weight"] = weights["position.weight"][skipped:].clone()
        weights["segment.weight"] = _two_segments(weights["segment.weight"])
    return name, shape, weights


def head_from_hugging_face(config: Mapping[str, Any], state: Mapping[str, Tensor]) -> State:
    """The prediction head (dense, norm, bias) of a …ForMaskedLM, without biases that it lacks."""
    head = {}
    for ours, theirs in family_of(config)[0].head.items():
        for leaf in ("weight", "bias"):
            is_output = not ours and leaf == "weight"  # this matrix is the token embedding
            if f"{theirs}.{leaf}" in state and not is_output:
                head[f"{ours}.{leaf}".removeprefix(".")] = state[f"{theirs}.{leaf}"].clone()
    if not {"dense.weight", "norm.weight", "bias"} <= head.keys():
        raise DataError(
            "the weights contain no prediction head",
            remedy="Give those of a model for masked language modelling.",
        )
    return head


def judgement_from_hugging_face(config: Mapping[str, Any], state: Mapping[str, Tensor]) -> State:
    """The head of ELECTRA's discriminator (dense, out); empty if there is none."""
    names = {
        "dense.weight": "discriminator_predictions.dense.weight",
        "dense.bias": "discriminator_predictions.dense.bias",
        "out.weight": "discriminator_predictions.dense_prediction.weight",
        "out.bias": "discriminator_predictions.dense_prediction.bias",
    }
    if config.get("model_type") != "electra" or not set(names.values()) <= state.keys():
        return {}
    return {ours: state[theirs].clone() for ours, theirs in names.items()}


def _two_segments(rows: Tensor) -> Tensor:
    """The segment embeddings for pairs of texts; if there is one row, both texts get it."""
    if len(rows) > SEGMENTS:
        raise DataError(
            f"tasklm's bert does not support type_vocab_size = {len(rows)}",
            remedy=f"Give a model with at most {SEGMENTS}.",
        )
    return rows.expand(SEGMENTS, -1).clone()


def _modules(family: Family, shape: Shape) -> dict[str, tuple[str, ...]]:
    """Our module → Hugging Face's modules, for the whole encoder."""
    modules: dict[str, tuple[str, ...]] = {}
    for ours, outside in family.outside.items():
        modules[ours] = (outside,)
    if family.encoder == "bert" and shape.token_width == shape.width:
        modules.pop("projection", None)
    layers = {f"layers.{number}": family.layers.format(number) for number in range(shape.layers)}
    if family.encoder == "albert":
        layers = {"shared": family.layers}
    for layer, place in layers.items():
        for ours, theirs in family.inside.items():
            modules[f"{layer}.{ours}"] = tuple(f"{place}.{module}" for module in theirs)
    if family.encoder == "modern":
        # the first layer reads the normalised embeddings
        modules.pop("layers.0.attention_norm", None)
    return modules


def _head_to(family: Family, head: Mapping[str, Tensor]) -> State:
    weights = {}
    for key, tensor in head.items():
        module, _, leaf = key.rpartition(".")
        if module not in family.head:
            raise DataError(
                f"a prediction head has no weight {key!r}", remedy="Give dense, norm and bias."
            )
        weights[f"{family.head[module]}.{leaf}"] = tensor.clone()
    return weights


def _zero_biases(state: State) -> State:
    """Biases of 0 for the encoder's norms: ModernBERT has biases in all norms or in none."""
    return {
        key.removesuffix("weight") + "bias": torch.zeros_like(tensor)
        for key, tensor in state.items()
        if key.endswith("norm.weight") and not key.startswith("head.")
    }


def _check_zero(biases: list[Tensor], module: str) -> None:
    if any(not bias.is_meta and bool(bias.any()) for bias in biases):
        raise DataError(
            f"{module} has a bias, but tasklm's modern encoder has none",
            remedy="Give a model trained without biases.",
        )
