"""Checkpoints in Hugging Face's layout: a folder, or a name of its hub that is in the cache.
Nothing in them is run or unpickled.

A folder holds config.json, tokenizer.json and the weights as safetensors, in one file or in several
with an index.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from tasklm.encoders.base import ENCODERS, Shape
from tasklm.encoders.checkpoints.hub_names import (
    State,
    from_hugging_face,
    head_from_hugging_face,
    judgement_from_hugging_face,
)
from tasklm.encoders.checkpoints.weight_files import finite_weights
from tasklm.encoders.checkpoints.weight_shapes import Shapes, shapes_in
from tasklm.encoders.initial_weights import shapes_alone
from tasklm.errors import DataError, RecipeError
from tasklm.storage.safe_reading import is_there, read_json_file, read_text

WEIGHTS, INDEX, TOKENIZER = "model.safetensors", "model.safetensors.index.json", "tokenizer.json"
MOST_LINE = 1 << 12  # bytes of a file with one line
PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json")
HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
AGAIN = "Copy the folder again from its source."


@dataclass(frozen=True)
class Checkpoint:
    """The contents of a folder; the weights are inspected but not yet read."""

    folder: Path
    config: dict[str, Any]
    files: tuple[Path, ...]  # of the weights
    encoder: str  # our name
    shape: Shape

    def weights(self) -> tuple[State, dict[str, State]]:
        """The encoder's weights and the available heads (readable name → weights), in our names and
        in fp32.
        """
        state: State = {}
        for file in self.files:
            with _damage_is_clear(file):
                tensors = finite_weights(file)
            state |= {_name_today(name): tensor.float() for name, tensor in tensors.items()}
        encoder = from_hugging_face(self.config, state)[2]
        judgement = judgement_from_hugging_face(self.config, state)
        heads = {
            "prediction head": self._prediction(state),
            "discriminator's head": {f"judgement.{n}": t for n, t in judgement.items()},
        }
        return encoder, {name: head for name, head in heads.items() if head}

    def _prediction(self, state: State) -> State:
        """The head of masked language modelling with all biases, if it computes what ours does."""
        try:
            head = head_from_hugging_face(self.config, state)
        except DataError:
            return {}
        if (
            not self.config.get("tie_word_embeddings", True)
            or self.config.get("classifier_activation", "gelu") != "gelu"
        ):
            return {}
        # ModernBERT's has none of these
        zeros = torch.zeros(len(head["norm.weight"]))
        return {"dense.bias": zeros, "norm.bias": zeros.clone(), **head}


def find_checkpoint(where: Path) -> Path | None:
    """The folder of the checkpoint that a path or a name of the hub stands for, if it does."""
    if is_there(where) and where.is_dir():
        config = where / "config.json"
        if is_there(config) and "model_type" in _json(config):
            return where
        return None
    if is_there(where) or not HUB_NAME.fullmatch(str(where)):
        return None
    return _cached(str(where))


def read_checkpoint(folder: Path) -> Checkpoint:
    """The contents of a checkpoint's folder; raises DataError if training cannot start from it."""
    config = _json(folder / "config.json")
    files = _weight_files(folder, config)
    if not (folder / TOKENIZER).exists():
        convert = f"AutoTokenizer.from_pretrained({str(folder)!r}).save_pretrained({str(folder)!r})"
        raise DataError(
            f"there is no {TOKENIZER}",
            file=folder,
            remedy=f"Write it with transformers: {convert}.",
        )
    shapes: Shapes = {}
    for file in files:
        with _damage_is_clear(file):
            shapes |= shapes_in(file)
    try:
        name, shape, state = from_hugging_face(
            config,
            {_name_today(key): torch.empty(size, device="meta") for key, size in shapes.items()},
        )
        with shapes_alone():
            wanted = ENCODERS.get(name)(shape).state_dict()
    except DataError as error:
        raise DataError(error.problem, file=folder, remedy=error.remedy) from None
    except RecipeError as error:
        raise DataError(
            "; ".join(error.problems), file=folder, remedy="Give another model."
        ) from None
    except (
        ValueError,
        TypeError,
        RuntimeError,
        AttributeError,
        LookupError,
        ArithmeticError,
    ) as error:
        raise DataError(
            f"config.json does not describe an encoder ({error})", file=folder, remedy=AGAIN
        ) from None
    for key, tensor in wanted.items():
        if state.keys() != wanted.keys() or state[key].shape != tensor.shape:
            size = tuple(state[key].shape) if key in state else "no shape: it is missing"
            problem = (
                f"the weights do not match config.json ({key} has {size}, not "
                f"{tuple(tensor.shape)})"
            )
            raise DataError(problem, file=folder, remedy=AGAIN)
    return Checkpoint(folder, config, files, name, shape)


def _weight_files(folder: Path, config: dict[str, Any]) -> tuple[Path, ...]:
    if (folder / WEIGHTS).exists():
        return (folder / WEIGHTS,)
    if (folder / INDEX).exists():
        return _indexed_files(folder)
    if any((folder / name).exists() for name in PICKLED):
        own_class = _class_of(config)
        convert = f"{own_class}.from_pretrained({str(folder)!r}).save_pretrained('converted')"
        remedy = (
            "Unpickling runs code from the file. If you trust it, convert it, and its tokenizer, "
            f"with transformers: {convert}."
        )
        raise DataError(
            f"the weights are pickled ({PICKLED[0]}), not {WEIGHTS}", file=folder, remedy=remedy
        )
    raise DataError(
        f"there are no weights ({WEIGHTS})",
        file=folder,
        remedy="Give a folder that has them, or fetch them too.",
    )


def _indexed_files(folder: Path) -> tuple[Path, ...]:
    """The files that an index names."""
    names: list[str] = []
    if isinstance(listed := _json(folder / INDEX).get("weight_map"), dict):
        names = sorted({str(name) for name in listed.values()})
    missing = [name for name in names if Path(name).name != name or not (folder / name).exists()]
    if missing or not names:
        first = [*missing, "no file"][0]
        problem = f"{INDEX} names {first}, which is missing"
        raise DataError(problem, file=folder, remedy=AGAIN)
    return tuple(folder / name for name in names)


def _class_of(config: dict[str, Any]) -> str:
    """The class of a model in transformers; another one would reinitialise the heads."""
    named = config.get("architectures")
    if isinstance(named, list) and named and str(named[0]).isidentifier():
        return str(named[0])
    return "AutoModel"


@contextmanager
def _damage_is_clear(file: Path) -> Iterator[None]:
    try:
        yield
    except (SafetensorError, OSError, ValueError) as error:
        raise DataError(f"damaged ({error})", file=file, remedy=AGAIN) from None


def _json(file: Path) -> dict[str, Any]:
    try:
        content = read_json_file(file)
    except (OSError, ValueError) as error:
        raise DataError(f"cannot be read ({error})", file=file, remedy=AGAIN) from None
    if not isinstance(content, dict):
        raise DataError("is not a JSON object", file=file, remedy=AGAIN)
    return content


def _line(file: Path) -> str:
    try:
        return read_text(file, MOST_LINE).strip()
    except (OSError, ValueError) as error:
        raise DataError(
            f"cannot be read ({error})", file=file, remedy="Fetch the model again."
        ) from None


def _name_today(name: str) -> str:
    """The current name of a weight in old files, such as those of the first BERT."""
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
        "LayerNorm.beta", "LayerNorm.bias"
    )


def hub_cache() -> Path:
    """The cache folder of Hugging Face's tools."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    home = Path(os.environ.get("HF_HOME") or cache)
    return Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()


def _cached(name: str) -> Path:
    """The folder of a model of the hub, looked up in the cache; nothing is fetched."""
    cache = hub_cache()
    exact = cache / f"models--{name.replace('/', '--')}"
    matches: list[Path] = []
    if exact.is_dir():
        matches = [exact]
    elif "/" not in name:
        matches = sorted(cache.glob(f"models--*--{name}"))
    if not matches:
        raise DataError(
            f"there is no folder {name}, and no model of this name in the cache of Hugging Face's "
            f"hub ({cache})",
            remedy="Give the folder of a run or of a checkpoint, or fetch the model first: "
            f"hf download {name}",
        )
    if len(matches) > 1:
        names = ", ".join(
            folder.name.removeprefix("models--").replace("--", "/") for folder in matches
        )
        raise DataError(
            f"the cache of Hugging Face's hub has several models called {name}",
            remedy=f"Choose from {names}.",
        )
    model = matches[0]
    main = model / "refs" / "main"
    snapshots = sorted(folder for folder in (model / "snapshots").glob("*") if folder.is_dir())
    if main.exists():
        snapshots = [folder for folder in snapshots if folder.name == _line(main)]
    if len(snapshots) != 1:
        count = len(snapshots) or "no"
        raise DataError(
            f"the cache of Hugging Face's hub has {count} versions of {name} ({model})",
            remedy=f"Give the folder of one of them, or fetch the model again: hf download {name}",
        )
    return snapshots[0]
