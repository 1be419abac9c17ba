"""Trained models as folders that transformers loads without code of ours.

Our head of one token is Linear, GELU, Linear, which is ELECTRA's (ElectraClassificationHead;
ElectraForMultipleChoice has the same), and ELECTRA's encoder is BERT's: `bert` and `roberta` become
ELECTRA. With `modern` and `modernbert` it has a LayerNorm before the last map, as ModernBERT's
classes have it, and becomes one of these. ALBERT's classes for texts read a tanh pooler, which
cannot hold our head, but its encoder can be written out as an ELECTRA whose layers are all the
same.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor, nn

from tasklm.encoders.checkpoints.hub_names import to_hugging_face
from tasklm.errors import RecipeError
from tasklm.export.source import Source
from tasklm.export.tokenizer_files import write_tokenizer
from tasklm.storage.files import write_bytes, write_json
from tasklm.tasks.base import Elsewhere

State = dict[str, Tensor]

MODERN = ("modern", "modernbert")
HEADS = {  # of ELECTRA and ALBERT, by the ending of the class: module of our head → module there
    "ForSequenceClassification": {"dense": "classifier.dense", "out": "classifier.out_proj"},
    "ForMultipleChoice": {"dense": "sequence_summary.summary", "out": "classifier"},
    "ForTokenClassification": {"out": "classifier"},
}
MODERN_HEAD = {
    "dense": "head.dense",
    "norm": "head.norm",
    "out": "classifier",
}  # the same in all classes of ModernBERT
ONNX = "Export it with --to onnx."
PREDICT = "Use tasklm predict, or the model in Python."


def check_transformers(source: Source) -> Elsewhere:
    """What the task is in transformers; raises RecipeError, which says the way out, where no class
    of it computes the same.
    """
    encoder, shape, found = source.encoder, source.shape, source.task.elsewhere
    if found is None:
        ours = f"{source.task.kind} ({type(source.model.head).__name__})"
        raise RecipeError(
            [f"--to hf: transformers has no head that computes what that of {ours} does. {PREDICT}"]
        )
    if not found.ending:
        raise RecipeError(
            [
                (
                    f"--to hf: no class of transformers reads at "
                    f"marks in the text ({' '.join(found.marks)}). {ONNX}"
                )
            ]
        )
    if encoder in MODERN and shape.token_width != shape.width:
        problem = (
            "ModernBERT in transformers has no embeddings of a width of their own (model.embedding)"
        )
        raise RecipeError([f"--to hf: {problem}. {ONNX}"])
    if encoder in MODERN and "norm.weight" not in source.model.head.state_dict():
        problem = (
            "this model is of an older version, "
            "whose heads had no LayerNorm, and ModernBERT's in transformers have one"
        )
        raise RecipeError([f"--to hf: {problem}. Train it again, or export it with --to onnx."])
    if encoder == "albert" and not found.of_words and shape.token_width == shape.width:
        problem = (
            "AlbertForSequenceClassification has a tanh in the head, "
            "and ELECTRA does not project embeddings of the layers' own width"
        )
        raise RecipeError([f"--to hf: {problem}. {ONNX}"])
    if encoder not in ("bert", "roberta", "albert", *MODERN):
        raise RecipeError(
            [f"--to hf: the encoder {encoder!r} has no equal in transformers. {ONNX}"]
        )
    return found


def write_transformers(source: Source, folder: Path) -> str:
    """Writes config.json, model.safetensors and the tokenizer; returns the name of the class that
    loads them.
    """
    there = check_transformers(source)
    modern = source.encoder in MODERN
    if modern:
        config, state = _modernbert(source)
    else:
        config, state = (
            _albert(source) if source.encoder == "albert" and there.of_words else _electra(source)
        )
    title = str(config["architectures"][0]).removesuffix("Model") + there.ending
    state |= _head(source.model.head, MODERN_HEAD if modern else HEADS[there.ending])
    config |= {
        "architectures": [title],
        "dtype": "float32",
        "pad_token_id": source.vocabulary.pad,
        **_labels(source, there),
    }
    tensors = {key: tensor.contiguous() for key, tensor in state.items()}
    write_bytes(folder / "model.safetensors", save(tensors, metadata={"format": "pt"}))
    write_json(folder / "config.json", config)
    write_tokenizer(
        folder, source.vocabulary, source.length, segments=source.has_segments, cuts=False
    )
    return title


def _labels(source: Source, there: Elsewhere) -> dict[str, Any]:
    """The names of the classes, as config.json has them; a number or the score of an option has
    none.
    """
    names = source.task.labels or ["score"]
    found: dict[str, Any] = {"id2label": {str(number): name for number, name in enumerate(names)}}
    found["label2id"] = {name: number for number, name in enumerate(names)}
    if there.problem:
        found["problem_type"] = there.problem
    return found


def _head(head: nn.Module, modules: dict[str, str]) -> State:
    found = {}
    for key, tensor in head.state_dict().items():
        module, _, leaf = key.rpartition(".")
        found[f"{modules[module]}.{leaf}"] = tensor.clone()
    return found


def _modernbert(source: Source) -> tuple[dict[str, Any], State]:
    """Returns configuration and weights of the encoder for ModernBERT's classes; their head reads
    the first token, or all.
    """
    config, state = to_hugging_face(source.encoder, source.shape, source.model.encoder.state_dict())
    config |= {
        "classifier_pooling": "cls",
        "classifier_activation": "gelu",
        "classifier_bias": True,
        "classifier_dropout": 0.0,
    }
    config |= {
        "norm_bias": False,
        "cls_token_id": source.vocabulary.cls,
        "sep_token_id": source.vocabulary.sep,
    }
    return config, {f"model.{key}": tensor for key, tensor in state.items()}


def _albert(source: Source) -> tuple[dict[str, Any], State]:
    """Returns configuration and weights of the encoder for AlbertForTokenClassification, whose head
    is linear like ours.
    """
    config, state = to_hugging_face("albert", source.shape, source.model.encoder.state_dict())
    return config, {f"albert.{key}": tensor for key, tensor in state.items()}


def _electra(source: Source) -> tuple[dict[str, Any], State]:
    """Returns configuration and weights of the encoder as ELECTRA's; the layer that ALBERT repeats
    is written once for each time.
    """
    shape, state = source.shape, source.model.encoder.state_dict()
    name = source.encoder
    if name == "albert":
        name, state = "bert", _written_out(state, shape.layers)
    config, found = to_hugging_face(
        name, shape, state
    )  # Bert's names where embeddings have the layers' width: the same as ELECTRA's
    config |= {
        "model_type": "electra",
        "architectures": ["ElectraModel"],
        "embedding_size": shape.token_width,
    }
    config |= {"hidden_act": "gelu_new" if source.encoder == "albert" else "gelu"}
    config |= {
        "summary_type": "first",
        "summary_use_proj": True,
        "summary_activation": "gelu",
    }  # of ElectraForMultipleChoice
    return config, {f"electra.{key}": tensor for key, tensor in found.items()}


def _written_out(state: State, layers: int) -> State:
    shared = {key: tensor for key, tensor in state.items() if key.startswith("shared.")}
    rest = {key: tensor for key, tensor in state.items() if key not in shared}
    return rest | {
        re.sub(r"^shared\.", f"layers.{number}.", key): tensor.clone()
        for number in range(layers)
        for key, tensor in shared.items()
    }
