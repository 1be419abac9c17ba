"""Encoders in the names of Hugging Face's models (transformers 5), both ways and without that
library.

bert ↔ BertModel, or ElectraModel where the embeddings have a width of their own; roberta ↔ the same
with another ε, which is also what RobertaModel and its relatives are read as; modern ↔
ModernBertModel with global attention in every layer, modernbert ↔ with the published local layers;
albert ↔ AlbertModel. The same with the prediction head of masked language modelling: …ForMaskedLM.
What these models can do and tasklm's cannot is refused, never dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tasklm.encoders.base import LIMITS, Shape
from tasklm.encoders.layers.embeddings import EPSILON, SEGMENTS
from tasklm.encoders.modern import EPSILON as MODERN_EPSILON
from tasklm.encoders.modern import ROTARY_BASE
from tasklm.encoders.modernbert import GLOBAL_BASE, LOCAL_BASE, WINDOW, is_global
from tasklm.encoders.roberta import EPSILON as ROBERTA_EPSILON
from tasklm.errors import DataError

State = dict[str, Tensor]


@dataclass(frozen=True)
class Family:
    """How one kind of Hugging Face's models calls things: our module → its modules, whose weights
    lie below one another in ours.
    """

    encoder: str  # our name
    title: str  # of its classes
    prefix: str  # of the encoder inside a model with a head
    outside: dict[str, str]
    layers: str  # place of a layer
    inside: dict[str, tuple[str, ...]]
    head: dict[str, str]
    numbers: dict[str, str]  # field of Shape → key of its configuration
    fixed: dict[
        str, Any
    ]  # what its configuration must say for the same computation; its own defaults
    counts_from_pad: bool = (
        False  # positions begin at pad_token_id + 1, and tokens may have one segment
    )


_NUMBERS = {
    "vocabulary": "vocab_size",
    "layers": "num_hidden_layers",
    "width": "hidden_size",
    "heads": "num_attention_heads",
    "feedforward": "intermediate_size",
    "positions": "max_position_embeddings",
    "dropout": "hidden_dropout_prob",
}
_SUMMED = {
    "token": "embeddings.word_embeddings",
    "position": "embeddings.position_embeddings",
    "segment": "embeddings.token_type_embeddings",
    "norm": "embeddings.LayerNorm",
}
_BERT_LAYER = {
    "query_key_value": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attention_out": ("attention.output.dense",),
    "attention_norm": ("attention.output.LayerNorm",),
    "up": ("intermediate.dense",),
    "down": ("output.dense",),
    "norm": ("output.LayerNorm",),
}
_ALBERT_LAYER = {
    "query_key_value": ("attention.query", "attention.key", "attention.value"),
    "attention_out": ("attention.dense",),
    "attention_norm": ("attention.LayerNorm",),
    "up": ("ffn",),
    "down": ("ffn_output",),
    "norm": ("full_layer_layer_norm",),
}
_MODERN_LAYER: dict[str, tuple[str, ...]] = {
    "query_key_value": ("attn.Wqkv",),
    "attention_out": ("attn.Wo",),
    "attention_norm": ("attn_norm",),
    "up": ("mlp.Wi",),
    "down": ("mlp.Wo",),
    "norm": ("mlp_norm",),
}
_EPSILONS = {EPSILON: "bert", ROBERTA_EPSILON: "roberta"}  # what tells the two encoders apart
_GELU = {"hidden_act": "gelu", "is_decoder": False}
_TWO_SEGMENTS = {"type_vocab_size": SEGMENTS}
_WITHOUT_BIASES = {"attention_bias": False, "mlp_bias": False}

_ROBERTA = Family(
    "bert",
    "Roberta",
    "roberta.",
    _SUMMED,
    "encoder.layer.{}",
    _BERT_LAYER,
    {"dense": "lm_head.dense", "norm": "lm_head.layer_norm", "": "lm_head"},
    _NUMBERS,
    _GELU,
    counts_from_pad=True,
)

FAMILIES = {  # by Hugging Face's model_type
    "bert": Family(
        "bert",
        "Bert",
        "bert.",
        _SUMMED,
        "encoder.layer.{}",
        _BERT_LAYER,
        {
            "dense": "cls.predictions.transform.dense",
            "norm": "cls.predictions.transform.LayerNorm",
            "": "cls.predictions",
        },
        _NUMBERS,
        {**_GELU, **_TWO_SEGMENTS},
    ),
    "electra": Family(
        "bert",
        "Electra",
        "electra.",
        {**_SUMMED, "projection": "embeddings_project"},
        "encoder.layer.{}",
        _BERT_LAYER,
        {
            "dense": "generator_predictions.dense",
            "norm": "generator_predictions.LayerNorm",
            "": "generator_lm_head",
        },
        {**_NUMBERS, "embedding": "embedding_size"},
        {**_GELU, **_TWO_SEGMENTS},
    ),
    "albert": Family(
        "albert",
        "Albert",
        "albert.",
        {**_SUMMED, "projection": "encoder.embedding_hidden_mapping_in"},
        "encoder.albert_layer_groups.0.albert_layers.0",
        _ALBERT_LAYER,
        {"dense": "predictions.dense", "norm": "predictions.LayerNorm", "": "predictions"},
        {**_NUMBERS, "embedding": "embedding_size"},
        {
            **_TWO_SEGMENTS,
            "hidden_act": "gelu_new",
            "layer_norm_eps": EPSILON,
            "num_hidden_groups": 1,
            "inner_group_num": 1,
        },
    ),
    "modernbert": Family(
        "modern",
        "ModernBert",
        "model.",
        {
            "token": "embeddings.tok_embeddings",
            "norm": "embeddings.norm",
            "last_norm": "final_norm",
        },
        "layers.{}",
        _MODERN_LAYER,
        {"dense": "head.dense", "norm": "head.norm", "": "decoder"},
        {**_NUMBERS, "dropout": "embedding_dropout"},
        {"hidden_activation": "gelu", "norm_eps": MODERN_EPSILON, **_WITHOUT_BIASES},
    ),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
}


def to_hugging_face(
    name: str, shape: Shape, state: Mapping[str, Tensor], head: Mapping[str, Tensor] | None = None
) -> tuple[dict[str, Any], State]:
    """Returns configuration and weights of the encoder called `name`, for config.json and
    model.safetensors.

    With the weights of a prediction head (dense, norm, bias) they are a …ForMaskedLM's. The numbers
    of special tokens are left empty; whoever knows the vocabulary writes pad_token_id and its like
    over them.
    """
    kind = _model_type(name, shape)
    family = FAMILIES[kind]
    numbers = {**shape.to_dict(), "embedding": shape.token_width}
    config: dict[str, Any] = {
        "model_type": kind,
        "architectures": [family.title + ("Model" if head is None else "ForMaskedLM")],
    }
    config |= (
        {theirs: numbers[ours] for ours, theirs in family.numbers.items()}
        | family.fixed
        | _more_of(name, shape)
    )
    modules = _modules(family, shape)
    prefix = "" if head is None else family.prefix
    found: State = {}
    for key, tensor in state.items():
        module, _, leaf = key.rpartition(".")
        if module not in modules:
            raise DataError(
                f"the encoder {name!r} has no weight {key!r}",
                remedy="Give the encoder's own state, without the head's.",
            )
        for theirs, part in zip(modules[module], tensor.chunk(len(modules[module])), strict=True):
            found[f"{prefix}{theirs}.{leaf}"] = part.clone()
    if head is not None:
        found |= _head_to(family, head)
        if kind == "modernbert":
            config |= {"classifier_bias": "dense.bias" in head, "norm_bias": "norm.bias" in head}
            found |= _zero_biases(found) if "norm.bias" in head else {}
    return config, found


def from_hugging_face(
    config: Mapping[str, Any], state: Mapping[str, Tensor]
) -> tuple[str, Shape, State]:
    """Returns our name, shape and weights of a model in Hugging Face's names; its heads and its
    pooler are left out.
    """
    family, name = _family(config)
    numbers: dict[str, Any] = {ours: config[theirs] for ours, theirs in family.numbers.items()}
    if numbers.get("embedding") == numbers["width"]:
        numbers["embedding"] = 0
    # rows of padding, and of nothing
    skipped = config.get("pad_token_id", 1) + 1 if family.counts_from_pad else 0
    shape = Shape.from_dict({**numbers, "positions": numbers["positions"] - skipped})
    inner = {key.removeprefix(family.prefix): tensor for key, tensor in state.items()}
    found: State = {}
    for ours, theirs in _modules(family, shape).items():
        for leaf in ("weight", "bias"):
            parts = [inner[f"{module}.{leaf}"] for module in theirs if f"{module}.{leaf}" in inner]
            if leaf == "bias" and family.encoder == "modern":
                _check_zero(parts, ours)
            elif len(parts) == len(theirs):
                found[f"{ours}.{leaf}"] = torch.cat(parts) if len(parts) > 1 else parts[0].clone()
            elif parts or leaf == "weight":
                raise DataError(
                    f"the weights lack {theirs[0]}.{leaf}",
                    remedy="Give all weights of the model, and its own configuration.",
                )
    if family.counts_from_pad:
        found["position.weight"] = found["position.weight"][skipped:].clone()
        found["segment.weight"] = _two_segments(found["segment.weight"])
    return name, shape, found


def head_from_hugging_face(config: Mapping[str, Any], state: Mapping[str, Tensor]) -> State:
    """The prediction head (dense, norm, bias) of a …ForMaskedLM; biases that it lacks are lacking
    here too.
    """
    head = {}
    for ours, theirs in _family(config)[0].head.items():
        for leaf in ("weight", "bias"):
            if f"{theirs}.{leaf}" in state and (
                ours or leaf == "bias"
            ):  # the output matrix is the token embedding
                head[f"{ours}.{leaf}".removeprefix(".")] = state[f"{theirs}.{leaf}"].clone()
    if not {"dense.weight", "norm.weight", "bias"} <= head.keys():
        raise DataError(
            "the weights hold no prediction head",
            remedy="Give those of a model for masked language modelling.",
        )
    return head


def judgement_from_hugging_face(config: Mapping[str, Any], state: Mapping[str, Tensor]) -> State:
    """The head of ELECTRA's discriminator (dense, out); empty where there is none."""
    modules = {
        "dense": "discriminator_predictions.dense",
        "out": "discriminator_predictions.dense_prediction",
    }
    names = {
        f"{ours}.{leaf}": f"{theirs}.{leaf}"
        for ours, theirs in modules.items()
        for leaf in ("weight", "bias")
    }
    complete = config.get("model_type") == "electra" and set(names.values()) <= state.keys()
    return {ours: state[theirs].clone() for ours, theirs in names.items()} if complete else {}


def _model_type(name: str, shape: Shape) -> str:
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
            f"the encoder {name!r} has no equal in transformers",
            remedy=f"Choose from {', '.join(kinds)}.",
        )
    if kinds[name] == "modernbert" and shape.token_width != shape.width:
        raise DataError(
            "ModernBertModel has no embeddings of a width of their own",
            remedy="Train it without model.embedding.",
        )
    return kinds[name]


def _two_segments(rows: Tensor) -> Tensor:
    """The segment embeddings for pairs of texts: where there is one row, both texts get it, as when
    it was trained.
    """
    if len(rows) > SEGMENTS:
        raise DataError(
            f"tasklm's bert does not compute type_vocab_size = {len(rows)}",
            remedy=f"Give a model with at most {SEGMENTS}.",
        )
    return rows.expand(SEGMENTS, -1).clone()


def _modules(family: Family, shape: Shape) -> dict[str, tuple[str, ...]]:
    """Returns our module → Hugging Face's modules, for the whole encoder."""
    found: dict[str, tuple[str, ...]] = {ours: (theirs,) for ours, theirs in family.outside.items()}
    if family.encoder == "bert" and shape.token_width == shape.width:
        found.pop("projection", None)
    shared = family.encoder == "albert"
    for number in range(1 if shared else shape.layers):
        for ours, theirs in family.inside.items():
            if family.encoder == "modern" and number == 0 and ours == "attention_norm":
                continue  # the first layer reads the normalised embeddings
            place = family.layers.format(number)
            found[f"shared.{ours}" if shared else f"layers.{number}.{ours}"] = tuple(
                f"{place}.{module}" for module in theirs
            )
    return found


def _more_of(name: str, shape: Shape) -> dict[str, Any]:
    """What the configuration says beside numbers: no other dropout, no special tokens, where
    attention looks.
    """
    more: dict[str, Any] = {
        "tie_word_embeddings": True,
        "pad_token_id": None,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    if name in _EPSILONS.values():
        more["layer_norm_eps"] = next(
            epsilon for epsilon, encoder in _EPSILONS.items() if encoder == name
        )
    if name not in ("modern", "modernbert"):
        return {**more, "attention_probs_dropout_prob": 0.0}
    bases = (
        {"full_attention": ROTARY_BASE}
        if name == "modern"
        else {"full_attention": GLOBAL_BASE, "sliding_attention": LOCAL_BASE}
    )
    more |= {
        "cls_token_id": None,
        "sep_token_id": None,
        "attention_dropout": 0.0,
        "mlp_dropout": 0.0,
    }
    more["layer_types"] = (
        ["full_attention"] * shape.layers if name == "modern" else _published_layers(shape.layers)
    )
    more["rope_parameters"] = {
        kind: {"rope_type": "default", "rope_theta": base} for kind, base in bases.items()
    }
    return more if name == "modern" else {**more, "local_attention": 2 * WINDOW}


def _published_layers(layers: int) -> list[str]:
    return [
        "full_attention" if is_global(number) else "sliding_attention" for number in range(layers)
    ]


def _family(config: Mapping[str, Any]) -> tuple[Family, str]:
    """The family of a configuration and our encoder, or raises one error that lists what tasklm
    does not compute.
    """
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
        name = _EPSILONS.get(epsilon, "bert")
        wrong += (
            []
            if epsilon in _EPSILONS
            else [f"layer_norm_eps = {epsilon!r} (not {' or '.join(map(repr, _EPSILONS))})"]
        )
    if name == "modern":
        name, problems = _kind_of_modern(config)
        wrong += problems
    if wrong:
        raise DataError(
            f"tasklm's {family.encoder} does not compute {', '.join(wrong)}",
            remedy="Give a model without these.",
        )
    return family, name


def _check_numbers(config: Mapping[str, Any], family: Family) -> None:
    """Raises ValueError where numbers of a configuration, which may come from anywhere, are none,
    or far too large."""
    limits = {theirs: LIMITS[ours] for ours, theirs in family.numbers.items() if ours in LIMITS}
    if config.get("pad_token_id") is not None:
        limits["pad_token_id"] = (0, LIMITS["vocabulary"][1])
    for key, (low, high) in limits.items():
        if type(config[key]) is not int or not low <= config[key] <= high:
            raise ValueError(f"{key} is not a whole number from {low:,} to {high:,}")


def _kind_of_modern(config: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Returns our encoder for ModernBERT's configuration, and what neither of the two computes;
    reads old configurations too.
    """
    layers, every = config["num_hidden_layers"], config.get("global_attn_every_n_layers", 3)
    types = config.get("layer_types") or [
        "sliding_attention" if number % every else "full_attention" for number in range(layers)
    ]
    rotary = config.get("rope_parameters") or {}
    full, local = ({**(rotary.get(kind) or {})} for kind in ("full_attention", "sliding_attention"))
    base = full.get("rope_theta", config.get("global_rope_theta", GLOBAL_BASE))
    local_base = local.get("rope_theta", config.get("local_rope_theta", LOCAL_BASE))
    if not isinstance(types, list) or len(types) != layers:
        raise ValueError("layer_types is not a list with an entry for each layer")
    wrong = [
        f"rope_type = {kind!r}"
        for part in (full, local)
        if (kind := part.get("rope_type", "default")) != "default"
    ]
    wrong += [f"rope_scaling = {config['rope_scaling']!r}"] if config.get("rope_scaling") else []
    if set(types) == {"full_attention"} and (
        base == ROTARY_BASE or types != _published_layers(layers)
    ):
        return "modern", wrong + (
            [f"rope_theta = {base!r} (not {ROTARY_BASE!r})"] if base != ROTARY_BASE else []
        )
    if types != _published_layers(layers):
        wrong.append(
            "local attention in other layers than ModernBERT's, which are all but every third"
        )
    asked: dict[str, tuple[Any, float]] = {
        "local_attention": (config.get("local_attention", 2 * WINDOW), 2 * WINDOW)
    }
    asked |= {
        "rope_theta of global layers": (base, GLOBAL_BASE),
        "rope_theta of local layers": (local_base, LOCAL_BASE),
    }
    wrong += [
        f"{key} = {value!r} (not {ours!r})" for key, (value, ours) in asked.items() if value != ours
    ]
    return "modernbert", wrong


def _head_to(family: Family, head: Mapping[str, Tensor]) -> State:
    found = {}
    for key, tensor in head.items():
        module, _, leaf = key.rpartition(".")
        if module not in family.head:
            raise DataError(
                f"a prediction head has no weight {key!r}", remedy="Give dense, norm and bias."
            )
        found[f"{family.head[module]}.{leaf}"] = tensor.clone()
    return found


def _zero_biases(state: State) -> State:
    """Returns biases of 0 for the encoder's norms: ModernBERT's configuration has biases in all
    norms or in none.
    """
    norms = {
        key: tensor
        for key, tensor in state.items()
        if key.endswith("norm.weight") and not key.startswith("head.")
    }
    return {
        key.removesuffix("weight") + "bias": torch.zeros_like(tensor)
        for key, tensor in norms.items()
    }


def _check_zero(biases: list[Tensor], module: str) -> None:
    if any(not bias.is_meta and bool(bias.any()) for bias in biases):
        raise DataError(
            f"{module} has a bias, tasklm's modern encoder has none",
            remedy="Give a model trained without biases.",
        )
