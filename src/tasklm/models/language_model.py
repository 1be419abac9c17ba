"""The language model of stage 1: encoder and objective, with a description that lets them be loaded
again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tasklm.encoders.base import Shape
from tasklm.encoders.checkpoints.weight_files import finite_weights, misfits
from tasklm.encoders.checkpoints.weight_shapes import shapes_in
from tasklm.encoders.initial_weights import shapes_alone
from tasklm.errors import RunError
from tasklm.models.damage import damage_is_clear
from tasklm.models.saved_model import check_rows
from tasklm.models.task_model import new_encoder
from tasklm.objectives.base import OBJECTIVES
from tasklm.recipe.model_sections import Train
from tasklm.recipe.schema import from_dict
from tasklm.run_folder import shipped_stage1, stage1_name
from tasklm.storage.checksums import require_whole
from tasklm.storage.files import damaged, read_json, write_json
from tasklm.storage.safe_reading import MOST_JSON
from tasklm.tokens.tokenizer import Vocabulary

FORMAT = 1


@dataclass(frozen=True)
class LanguageModel:
    """The part of stage 1 trained on text, without the task's head."""

    encoder: Any
    objective: Any
    vocabulary: Vocabulary
    settings: Train
    length: int  # tokens of the longest row, [CLS] and [SEP] among them
    device: torch.device


def describe_language_model(
    folder: Path, encoder: str, shape: Shape, vocabulary: Vocabulary, settings: Train, length: int
) -> None:
    """Writes config.json and tokenizer.json beside the weights of stage 1; no code and nothing
    pickled.
    """
    vocabulary.save(folder / "tokenizer.json")
    made_of = {
        "encoder": encoder,
        "shape": shape.to_dict(),
        "objective": settings.objective,
        "train": asdict(settings),
    }
    write_json(folder / "config.json", {"format": FORMAT, **made_of, "length": length})


@dataclass(frozen=True)
class Description:
    """The description beside the weights of a language model."""

    folder: Path
    encoder: str
    shape: Shape
    settings: Train
    vocabulary: Vocabulary
    length: int

    @property
    def weights(self) -> Path:
        """The file with the weights of encoder, objective and task head."""
        return self.folder / "model.safetensors"

    @contextmanager
    def damage_is_clear(self) -> Iterator[None]:
        """Turns errors of unreadable or mismatched weights into a clear message."""
        with damage_is_clear(self.folder):
            yield


def read_description(where: Path) -> Description:
    """What describes the language model of a run folder, or of a folder of stage 1 in it.

    Of several trainings of stage 1 it is the one that the run's model was built from.
    """
    folder = _stage1_of(where)
    with damage_is_clear(folder):
        config = read_json(folder / "config.json", MOST_JSON)
        version = config.get("format") if isinstance(config, dict) else None
        if version != FORMAT:
            raise RunError(
                f"{folder / 'config.json'} has format {repr(version)[:20]}, but this version "
                f"reads {FORMAT}. {_again(folder)}"
            )
        require_whole(folder)
        settings = from_dict({"train": config["train"]}).train
        shape = Shape.from_dict(config["shape"])
        if config["objective"] != settings.objective:
            raise ValueError(
                f"config.json names two objectives, {config['objective']} and {settings.objective}"
            )
        encoder, vocabulary = str(config["encoder"]), Vocabulary.load(folder / "tokenizer.json")
        check_rows(encoder, shape, vocabulary, config["length"])
        return Description(folder, encoder, shape, settings, vocabulary, config["length"])


def load_language_model(where: Path, device: torch.device) -> LanguageModel:
    """The language model that `read_description` describes, ready to score text."""
    about = read_description(where)
    with about.damage_is_clear():
        shapes = shapes_in(about.weights)
        with shapes_alone():
            encoder, objective = _new_parts(about)
            if problems := misfits(encoder, "encoder.", shapes) + misfits(
                objective, "objective.", shapes
            ):
                raise ValueError(f"{about.weights.name}: {problems[0]}")
        encoder, objective = _new_parts(about)
        weights = finite_weights(about.weights)
        encoder.load_state_dict(under("encoder.", weights))
        objective.load_state_dict(under("objective.", weights))
    return LanguageModel(
        encoder.to(device).eval(),
        objective.to(device).eval(),
        about.vocabulary,
        about.settings,
        about.length,
        device,
    )


def _new_parts(about: Description) -> tuple[Any, Any]:
    """The described encoder and objective, randomly initialised."""
    objective = OBJECTIVES.get(about.settings.objective)
    return new_encoder(about.encoder, about.shape, about.vocabulary), objective(
        about.encoder, about.shape, about.vocabulary, about.settings
    )


def _stage1_of(where: Path) -> Path:
    """The folder of a language model; the error names what is there instead."""
    if where.is_file():
        raise RunError(
            f"{where} is a file. Give the folder of a run, such as runs/first, or the folder "
            "stage1 in it."
        )
    if not where.is_dir():
        raise RunError(f"there is no folder {where}. Give the folder of a run, such as runs/first.")
    folder = where
    if (where / stage1_name(1)).is_dir():
        folder = shipped_stage1(where)
    if (folder / "config.json").exists() and not (folder / "model.safetensors").exists():
        raise damaged(folder, "model.safetensors is missing")
    if not (folder / "model.safetensors").exists():
        raise RunError(
            f"{where} contains no language model (no stage1). Give the folder of a run after: "
            "tasklm train RUN"
        )
    if not (folder / "config.json").exists():
        raise RunError(
            f"{folder} was trained before language models could be loaded again (no config.json). "
            f"{_again(folder)}"
        )
    with damage_is_clear(folder):
        config = read_json(folder / "config.json", MOST_JSON)
    if isinstance(config, dict) and "objective" not in config:
        raise RunError(
            f"{where} contains only a task model, not its language model. Give the folder of the "
            "run, with its stage1."
        )
    return folder


def _again(folder: Path) -> str:
    return f"Delete {folder} and train it again: tasklm train {folder.parent}"


def under(prefix: str, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights whose names begin with the prefix, without it."""
    return {
        name.removeprefix(prefix): value
        for name, value in weights.items()
        if name.startswith(prefix)
    }
