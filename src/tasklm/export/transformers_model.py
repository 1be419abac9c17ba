"""Trained models as folders that transformers loads without our code.

Our head of one token is Linear, GELU, Linear, which is ELECTRA's (ElectraClassificationHead;
ElectraForMultipleChoice has the same), and ELECTRA's encoder is BERT's: `bert` and `roberta` become
ELECTRA. With `modern` and `modernbert` it has a LayerNorm before the last map, as ModernBERT's
classes have it, and becomes one of these. ALBERT's classes for texts read a tanh pooler, which
cannot hold our head, but its encoder can be written out as an ELECTRA whose layers are all the
same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor, nn

from tasklm.encoders.checkpoints.hub_names import to_hugging_face
from tasklm.errors import RecipeError
from tasklm.export.source import Source, refuse_recurrent
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
# the same in all classes of ModernBERT
MODERN_HEAD = {"dense": "head.dense", "norm": "head.norm", "out": "classifier"}
ONNX = "Export it with --to onnx."
PREDICT = "Use tasklm predict, or the model in Python."


def check_transformers(source: Source) -> Elsewhere:
    """The task's equivalent in transformers; raises RecipeError if no class computes the same."""
    refuse_recurrent(source, "hf", "transformers has no class for it")
    encoder, shape, there = source.encoder, source.shape, source.task.elsewhere
    if there is None:
        ours = f"{source.task.kind} ({type(source.model.head).__name__})"
        problem = f"transformers has no head equivalent to that of {ours}"
        raise RecipeError(
            [f"--to hf: {problem}. {ONNX if hasattr(source.model.head, 'step') else PREDICT}"]
        )
    if not there.ending:
        marks = " ".join(there.marks)
        problem = f"no class of transformers reads markers in the text ({marks})"
        way_out = f"{ONNX} A model trained with --kind.marks '' reads none."
        raise RecipeError([f"--to hf: {problem}. {way_out}"])
    hidden = "dense.weight" in source.model.head.state_dict()
    if encoder not in MODERN and hidden and "dense" not in HEADS[there.ending]:
        problem = (
            f"a head for several tasks has a hidden layer, and no {there.ending} class has one"
        )
        raise RecipeError([f"--to hf: {problem} with the encoder {encoder!r}. {ONNX}"])
    if encoder in MODERN and shape.token_width != shape.width:
        problem = "ModernBERT in transformers has no separate embedding width (model.embedding)"
        raise RecipeError([f"--to hf: {problem}. {ONNX}"])
    if encoder in MODERN and "norm.weight" not in source.model.head.state_dict():
        older = "this model is from an older version, whose heads had no LayerNorm"
        problem = f"{older}, but ModernBERT's in transformers have one"
        raise RecipeError([f"--to hf: {problem}. Train it again, or export it with --to onnx."])
    if encoder == "albert" and not there.of_words and shape.token_width == shape.width:
        albert = "AlbertForSequenceClassification has a tanh in the head"
        electra = "ELECTRA does not project embeddings of the layers' own width"
        problem = f"{albert}, and {electra}"
        raise RecipeError([f"--to hf: {problem}. {ONNX}"])
    if encoder not in ("bert", "roberta", "albert", *MODERN):
        problem = f"the encoder {encoder!r} has no equivalent in transformers"
        raise RecipeError([f"--to hf: {problem}. {ONNX}"])
    return there


def write_transformers(source: Source, folder: Path) -> str:
    """Writes config.json, model.safetensors and the tokenizer; returns the class for them."""
    there = check_transformers(source)
    modern = source.encoder in MODERN
    if modern:
        config, state = _modernbert(source)
    elif source.encoder == "albert" and there.of_words:
        config, state = _albert(source)
    else:
        config, state = _electra(source)
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
    """The names of the classes, as config.json has them; a number or an option's score has none."""
    names = source.task.labels or ["score"]
    values: dict[str, Any] = {"id2label": {str(number): name for number, name in enumerate(names)}}
    values["label2id"] = {name: number for number, name in enumerate(names)}
    if there.problem:
        values["problem_type"] = there.problem
    return values


def _head(head: nn.Module, modules: dict[str, str]) -> State:
    state = {}
    for key, tensor in head.state_dict().items():
        module, _, leaf = key.rpartition(".")
        state[f"{modules[module]}.{leaf}"] = tensor.clone()
    return state


def _modernbert(source: Source) -> tuple[dict[str, Any], State]:
    """Configuration and weights for ModernBERT's classes, whose head reads one token or all."""
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
    """Configuration and weights for AlbertForTokenClassification, with a linear head like ours."""
    config, state = to_hugging_face("albert", source.shape, source.model.encoder.state_dict())
    return config, {f"albert.{key}": tensor for key, tensor in state.items()}


def _electra(source: Source) -> tuple[dict[str, Any], State]:
    """Configuration and weights as ELECTRA's; ALBERT's one layer is written for each time."""
    shape, state = source.shape, source.model.encoder.state_dict()
    name = source.encoder
    if name == "albert":
        name, state = "bert", _written_out(state, shape.layers)
    # Bert's names where embeddings have the layers' width: the same as ELECTRA's
    config, weights = to_hugging_face(name, shape, state)
    config |= {
        "model_type": "electra",
        "architectures": ["ElectraModel"],
        "embedding_size": shape.token_width,
        "hidden_act": "gelu_new" if source.encoder == "albert" else "gelu",
        # of ElectraForMultipleChoice
        "summary_type": "first",
        "summary_use_proj": True,
        "summary_activation": "gelu",
    }
    return config, {f"electra.{key}": tensor for key, tensor in weights.items()}


def _written_out(state: State, layers: int) -> State:
    shared = {key: tensor for key, tensor in state.items() if key.startswith("shared.")}
    written = {key: tensor for key, tensor in state.items() if key not in shared}
    for number in range(layers):
        for key, tensor in shared.items():
            written[f"layers.{number}.{key.removeprefix('shared.')}"] = tensor.clone()
    return written
