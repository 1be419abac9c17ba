"""Hugging Face's configurations of encoders: read, checked and written; see hub_names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tasklm.encoders.base import LIMITS, Shape
from tasklm.encoders.checkpoints.hub_families import EPSILONS, FAMILIES, Family
from tasklm.encoders.layers.embeddings import EPSILON
from tasklm.encoders.modern import ROTARY_BASE
from tasklm.encoders.modernbert import GLOBAL_BASE, LOCAL_BASE, WINDOW, is_global
from tasklm.errors import DataError


def model_type(name: str, shape: Shape) -> str:
    """Hugging Face's name for the kind of an encoder; raises DataError if it has none."""
    summed = "bert" if shape.token_width == shape.width else "electra"
    kinds = {
        "bert": summed,
        "roberta": summed,
        "modern": "modernbert",
        "modernbert": "modernbert",
        "albert": "albert",
    }
    if name not in kinds:
        raise DataError(
            f"the encoder {name!r} has no equivalent in transformers",
            remedy=f"Choose from {', '.join(kinds)}.",
        )
    if kinds[name] == "modernbert" and shape.token_width != shape.width:
        raise DataError(
            "ModernBertModel has no separate embedding width",
            remedy="Train it without model.embedding.",
        )
    return kinds[name]


def more_of(name: str, shape: Shape) -> dict[str, Any]:
    """The other settings of a configuration: dropout, special tokens, attention windows."""
    more: dict[str, Any] = {
        "tie_word_embeddings": True,
        "pad_token_id": None,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    if name in EPSILONS.values():
        more["layer_norm_eps"] = {encoder: epsilon for epsilon, encoder in EPSILONS.items()}[name]
    if name not in ("modern", "modernbert"):
        return {**more, "attention_probs_dropout_prob": 0.0}
    layers = ["full_attention"] * shape.layers
    bases = {"full_attention": ROTARY_BASE}
    if name == "modernbert":
        layers = _published_layers(shape.layers)
        bases = {"full_attention": GLOBAL_BASE, "sliding_attention": LOCAL_BASE}
    more |= {
        "cls_token_id": None,
        "sep_token_id": None,
        "attention_dropout": 0.0,
        "mlp_dropout": 0.0,
    }
    more["layer_types"] = layers
    more["rope_parameters"] = {
        kind: {"rope_type": "default", "rope_theta": base} for kind, base in bases.items()
    }
    if name == "modernbert":
        more["local_attention"] = 2 * WINDOW
    return more


def _published_layers(layers: int) -> list[str]:
    return [
        "full_attention" if is_global(number) else "sliding_attention" for number in range(layers)
    ]


def family_of(config: Mapping[str, Any]) -> tuple[Family, str]:
    """The family of a configuration and our encoder; raises an error that lists what is missing."""
    kind = config.get("model_type")
    if kind not in FAMILIES:
        raise DataError(
            f"there is no encoder for model_type = {kind!r}",
            remedy=f"tasklm reads {', '.join(FAMILIES)}.",
        )
    family = FAMILIES[kind]
    if missing := [key for key in family.numbers.values() if key not in config]:
        raise DataError(
            f"the configuration lacks {', '.join(missing)}",
            remedy="Give the whole config.json of the model.",
        )
    _check_numbers(config, family)
    wrong = [
        f"{key} = {config[key]!r} (not {value!r})"
        for key, value in family.fixed.items()
        if config.get(key, value) != value
    ]
    if config.get("position_embedding_type", "absolute") != "absolute":
        wrong.append(
            f"position_embedding_type = {config['position_embedding_type']!r} (not 'absolute')"
        )
    if family.counts_from_pad and config.get("pad_token_id", 1) is None:
        wrong.append("positions without a pad_token_id")
    name = family.encoder
    if name == "bert":
        epsilon = config.get("layer_norm_eps", EPSILON)
        name = EPSILONS.get(epsilon, "bert")
        if epsilon not in EPSILONS:
            choices = " or ".join(map(repr, EPSILONS))
            wrong.append(f"layer_norm_eps = {epsilon!r} (not {choices})")
    if name == "modern":
        name, problems = _kind_of_modern(config)
        wrong += problems
    if wrong:
        raise DataError(
            f"tasklm's {family.encoder} does not support {', '.join(wrong)}",
            remedy="Give a model without these.",
        )
    return family, name


def _check_numbers(config: Mapping[str, Any], family: Family) -> None:
    """Raises ValueError if numbers of a configuration are invalid or far too large."""
    limits = {theirs: LIMITS[ours] for ours, theirs in family.numbers.items() if ours in LIMITS}
    if config.get("pad_token_id") is not None:
        limits["pad_token_id"] = (0, LIMITS["vocabulary"][1])
    for key, (low, high) in limits.items():
        if type(config[key]) is not int or not low <= config[key] <= high:
            raise ValueError(f"{key} is not a whole number from {low:,} to {high:,}")


def _kind_of_modern(config: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Our encoder for ModernBERT's configuration, old ones too, and what it does not compute."""
    layers, every = config["num_hidden_layers"], config.get("global_attn_every_n_layers", 3)
    types = config.get("layer_types") or [
        "sliding_attention" if number % every else "full_attention" for number in range(layers)
    ]
    rotary = config.get("rope_parameters") or {}
    full = {**(rotary.get("full_attention") or {})}
    local = {**(rotary.get("sliding_attention") or {})}
    base = full.get("rope_theta", config.get("global_rope_theta", GLOBAL_BASE))
    local_base = local.get("rope_theta", config.get("local_rope_theta", LOCAL_BASE))
    if not isinstance(types, list) or len(types) != layers:
        raise ValueError("layer_types is not a list with an entry for each layer")
    wrong = [
        f"rope_type = {kind!r}"
        for part in (full, local)
        if (kind := part.get("rope_type", "default")) != "default"
    ]
    if scaling := config.get("rope_scaling"):
        wrong.append(f"rope_scaling = {scaling!r}")
    published = types == _published_layers(layers)
    if set(types) == {"full_attention"} and (base == ROTARY_BASE or not published):
        if base != ROTARY_BASE:
            wrong.append(f"rope_theta = {base!r} (not {ROTARY_BASE!r})")
        return "modern", wrong
    if not published:
        wrong.append("local attention in other layers than ModernBERT's (all except every third)")
    numbers: dict[str, tuple[Any, float]] = {
        "local_attention": (config.get("local_attention", 2 * WINDOW), 2 * WINDOW),
        "rope_theta of global layers": (base, GLOBAL_BASE),
        "rope_theta of local layers": (local_base, LOCAL_BASE),
    }
    wrong += [
        f"{key} = {value!r} (not {ours!r})"
        for key, (value, ours) in numbers.items()
        if value != ours
    ]
    return "modernbert", wrong
