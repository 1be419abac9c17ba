"""How Hugging Face's models (transformers 5) name modules and configurations, by kind of model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tasklm.encoders.layers.embeddings import EPSILON, SEGMENTS
from tasklm.encoders.modern import EPSILON as MODERN_EPSILON
from tasklm.encoders.roberta import EPSILON as ROBERTA_EPSILON


@dataclass(frozen=True)
class Family:
    """The names that one kind of Hugging Face's models uses.

    Our module → its modules, whose weights lie below one another in ours.
    """

    encoder: str  # our name
    title: str  # of its classes
    prefix: str  # of the encoder inside a model with a head
    outside: dict[str, str]
    layers: str  # place of a layer
    inside: dict[str, tuple[str, ...]]
    head: dict[str, str]
    numbers: dict[str, str]  # field of Shape → key of its configuration
    # what its configuration must have for the same computation; its own defaults
    fixed: dict[str, Any]
    # positions begin at pad_token_id + 1, and tokens may have one segment
    counts_from_pad: bool = False


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
EPSILONS = {EPSILON: "bert", ROBERTA_EPSILON: "roberta"}  # distinguishes the two encoders
_GELU = {"hidden_act": "gelu", "is_decoder": False}
_TWO_SEGMENTS = {"type_vocab_size": SEGMENTS}
_WITHOUT_BIASES = {"attention_bias": False, "mlp_bias": False}

_ROBERTA = Family(
    encoder="bert",
    title="Roberta",
    prefix="roberta.",
    outside=_SUMMED,
    layers="encoder.layer.{}",
    inside=_BERT_LAYER,
    head={"dense": "lm_head.dense", "norm": "lm_head.layer_norm", "": "lm_head"},
    numbers=_NUMBERS,
    fixed=_GELU,
    counts_from_pad=True,
)

FAMILIES = {  # by Hugging Face's model_type
    "bert": Family(
        encoder="bert",
        title="Bert",
        prefix="bert.",
        outside=_SUMMED,
        layers="encoder.layer.{}",
        inside=_BERT_LAYER,
        head={
            "dense": "cls.predictions.transform.dense",
            "norm": "cls.predictions.transform.LayerNorm",
            "": "cls.predictions",
        },
        numbers=_NUMBERS,
        fixed={**_GELU, **_TWO_SEGMENTS},
    ),
    "electra": Family(
        encoder="bert",
        title="Electra",
        prefix="electra.",
        outside={**_SUMMED, "projection": "embeddings_project"},
        layers="encoder.layer.{}",
        inside=_BERT_LAYER,
        head={
            "dense": "generator_predictions.dense",
            "norm": "generator_predictions.LayerNorm",
            "": "generator_lm_head",
        },
        numbers={**_NUMBERS, "embedding": "embedding_size"},
        fixed={**_GELU, **_TWO_SEGMENTS},
    ),
    "albert": Family(
        encoder="albert",
        title="Albert",
        prefix="albert.",
        outside={**_SUMMED, "projection": "encoder.embedding_hidden_mapping_in"},
        layers="encoder.albert_layer_groups.0.albert_layers.0",
        inside=_ALBERT_LAYER,
        head={"dense": "predictions.dense", "norm": "predictions.LayerNorm", "": "predictions"},
        numbers={**_NUMBERS, "embedding": "embedding_size"},
        fixed={
            **_TWO_SEGMENTS,
            "hidden_act": "gelu_new",
            "layer_norm_eps": EPSILON,
            "num_hidden_groups": 1,
            "inner_group_num": 1,
        },
    ),
    "modernbert": Family(
        encoder="modern",
        title="ModernBert",
        prefix="model.",
        outside={
            "token": "embeddings.tok_embeddings",
            "norm": "embeddings.norm",
            "last_norm": "final_norm",
        },
        layers="layers.{}",
        inside=_MODERN_LAYER,
        head={"dense": "head.dense", "norm": "head.norm", "": "decoder"},
        numbers={**_NUMBERS, "dropout": "embedding_dropout"},
        fixed={"hidden_activation": "gelu", "norm_eps": MODERN_EPSILON, **_WITHOUT_BIASES},
    ),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
}
