"""The starting point of stage 1 instead of random weights (`train.start`): the result of another
training.

That is another run of tasklm (its stage 1, or its fine-tuned model), or a checkpoint in Hugging
Face's layout. The encoder is continued as it is, with its vocabulary. The objective's own parts
go on where they are the same there; the task's head is always new. `starting_weights` is the one
place that knows what there is to start from.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tasklm.budget.costs import learns_positions
from tasklm.encoders.base import Shape
from tasklm.encoders.checkpoints.folder import (
    TOKENIZER,
    Checkpoint,
    find_checkpoint,
    read_checkpoint,
)
from tasklm.encoders.checkpoints.weight_files import finite_weights, misfits
from tasklm.encoders.checkpoints.weight_shapes import shapes_in
from tasklm.encoders.initial_weights import shapes_alone
from tasklm.encoders.shapes import padded_vocabulary
from tasklm.errors import RecipeError, RunError
from tasklm.models.damage import damage_is_clear
from tasklm.models.language_model import Description, read_description, under
from tasklm.models.saved_model import SavedModel, read_saved_model
from tasklm.models.task_model import new_encoder
from tasklm.objectives.base import OBJECTIVES
from tasklm.recipe.model_sections import Train
from tasklm.run_folder import is_stage1
from tasklm.storage.files import digest, file_digest
from tasklm.storage.safe_reading import is_there, read_json_file
from tasklm.tokens.tokenizer import Vocabulary

# keys of [model] that say an encoder's shape
NUMBERS = ("layers", "width", "heads", "feedforward", "embedding")


@dataclass(frozen=True)
class Start(ABC):
    """An encoder to start from, and its vocabulary."""

    folder: Path  # of the weights and of tokenizer.json, as an absolute path
    encoder: str
    shape: Shape
    vocabulary: Vocabulary

    @property
    def numbers(self) -> dict[str, int]:
        """The shape of the encoder by the keys of the recipe."""
        numbers = {name: getattr(self.shape, name) for name in NUMBERS}
        return {**numbers, "embedding": self.shape.token_width}

    @property
    def any_length(self) -> bool:
        """Whether the encoder has no table of positions: there may be any number of them."""
        return not learns_positions(self.encoder)

    def shape_for(self, length: int) -> Shape:
        """The shape of an encoder that reads rows of `length` tokens and can take the weights."""
        if not self.any_length:
            return self.shape
        return dataclasses.replace(self.shape, positions=length)

    @abstractmethod
    def digest(self) -> str:
        """A hash of the weights."""

    @abstractmethod
    def put_into(self, module: Any, objective: str) -> str:
        """Puts the weights into a new joint model; returns what was taken, for a person."""

    @abstractmethod
    def problems(self, settings: Train) -> list[str]:
        """Why the objective of the settings cannot go on here."""


@dataclass(frozen=True)
class OfRun(Start):
    """What stage 1 of another run left."""

    about: Description
    shapes: dict[str, tuple[int, ...]]  # of all tensors in its file

    def digest(self) -> str:
        """A hash of the weights."""
        return file_digest(self.about.weights)

    def put_into(self, module: Any, objective: str) -> str:
        """Loads the encoder, and the objective's own parts if the objective is the same."""
        with self.about.damage_is_clear():
            weights = finite_weights(self.about.weights)
        module.encoder.load_state_dict(under("encoder.", weights))
        if objective != self.about.settings.objective:
            return (
                f"stage 1 starts from the encoder of {self.folder} "
                f"({self.about.settings.objective}); the parts of {objective} are new"
            )
        module.objective.load_state_dict(under("objective.", weights))
        return f"stage 1 starts from the encoder of {self.folder} with its parts of {objective}"

    def problems(self, settings: Train) -> list[str]:
        """Why the objective's own parts cannot go on here, where the start has such too."""
        before = self.about.settings
        if settings.objective != before.objective:
            return []
        with shapes_alone():
            objective = OBJECTIVES.get(settings.objective)(
                self.encoder, self.shape, self.vocabulary, settings
            )
        if not (problems := misfits(objective, "objective.", self.shapes)):
            return []
        if settings.generator != before.generator:
            return [
                f"train.generator = {settings.generator}, but train.start has "
                f"{before.generator}: {self.folder}; set it to that"
            ]
        return [
            f"the parts of {settings.objective} do not match those of train.start, "
            f"{self.folder}: {problems[0]}"
        ]


@dataclass(frozen=True)
class OfModel(Start):
    """The encoder of a fine-tuned model of any kind of task; it has no parts of an objective."""

    saved: SavedModel

    def digest(self) -> str:
        """A hash of the weights."""
        return file_digest(self.saved.weights[0])

    def put_into(self, module: Any, objective: str) -> str:
        """Loads the encoder."""
        with self.saved.damage_is_clear():
            weights = finite_weights(self.saved.weights[0])
        module.encoder.load_state_dict(under("encoder.", weights))
        return (
            f"stage 1 starts from the encoder of {self.folder}, "
            f"fine-tuned ({self.saved.kind}); the parts of {objective} are new"
        )

    def problems(self, settings: Train) -> list[str]:
        """Problems of the objective itself; all of its parts are new."""
        return _refused(self, settings)


@dataclass(frozen=True)
class OfCheckpoint(Start):
    """A checkpoint in Hugging Face's layout; token types that it lacks keep the rows drawn here."""

    checkpoint: Checkpoint

    def digest(self) -> str:
        """A hash of the weights and of the configuration."""
        return digest(
            [file_digest(file) for file in (self.folder / "config.json", *self.checkpoint.files)]
        )

    def put_into(self, module: Any, objective: str) -> str:
        """Loads the encoder, and those of its heads that the objective can use."""
        encoder, heads = self.checkpoint.weights()
        module.encoder.load_state_dict(_filled_up(encoder, module.encoder))
        own = module.objective.state_dict()
        new, taken = set(own), ""
        for title, head in heads.items():
            whole = _filled_up(head, module.objective)
            if _has_place_for(own, whole):
                own = {**own, **whole}
                new = new - whole.keys()
                taken = f"{taken} and from its {title}"
        module.objective.load_state_dict(own)
        kind = self.checkpoint.config["model_type"]
        notes = [f"stage 1 starts from the encoder of {self.folder} ({kind}){taken}"]
        if new and taken:
            notes.append(f"the other parts of {objective} are new")
        elif new:
            there = ", ".join(heads) or "none"
            notes.append(
                f"the parts of {objective} are new: the checkpoint has no head for it "
                f"(it has {there})"
            )
        fresh = len(self.vocabulary) - len(encoder["token.weight"])
        if fresh > 0:
            notes.append(
                f"{fresh} tokens of its tokenizer have no embedding there and get new ones"
            )
        return "; ".join(notes)

    def problems(self, settings: Train) -> list[str]:
        """Problems of the objective itself; heads that do not fit are new."""
        return _refused(self, settings)


def _refused(start: Start, settings: Train) -> list[str]:
    """Why the objective cannot be made new for an encoder, say for lack of marks of words."""
    try:
        with shapes_alone():
            OBJECTIVES.get(settings.objective)(
                start.encoder, start.shape, start.vocabulary, settings
            )
    except RecipeError as error:
        return error.problems
    return []


def starting_weights(where: Path) -> Start:
    """The starting point; its weights are inspected but not yet read.

    That is stage 1 of a run (its folder, or `stage1` in it), a fine-tuned model (`model` in it, or
    what TaskLM.save wrote), or a checkpoint (a folder or a name of the hub).
    """
    if (folder := find_checkpoint(where)) is not None:
        checkpoint = read_checkpoint(folder.resolve())
        vocabulary = Vocabulary.load(checkpoint.folder / TOKENIZER)
        rows = padded_vocabulary(max(checkpoint.shape.vocabulary, len(vocabulary)))
        shape = dataclasses.replace(checkpoint.shape, vocabulary=rows, dropout=0.0)
        return OfCheckpoint(checkpoint.folder, checkpoint.encoder, shape, vocabulary, checkpoint)
    if _is_task_model(where):
        return _of_model(where)
    about = read_description(where)
    with about.damage_is_clear():
        shapes = _shapes_with_encoder(about.weights, about.encoder, about.shape)
    return OfRun(
        about.folder.resolve(), about.encoder, about.shape, about.vocabulary, about, shapes
    )


def _is_task_model(where: Path) -> bool:
    """Whether a folder contains a fine-tuned model: its config.json has a task and no objective."""
    path = where / "config.json"
    if not is_there(path):
        return False
    with damage_is_clear(where):
        config = read_json_file(path)
    return isinstance(config, dict) and "task" in config and "objective" not in config


def _of_model(folder: Path) -> OfModel:
    saved = read_saved_model(folder)
    if len(saved.weights) > 1:
        raise RunError(
            f"{folder} is an ensemble of {len(saved.weights)} models, but stage 1 starts from a "
            "single one. Give the folder 'model' beside it, which has the best of them."
        )
    if (saved.config.get("about") or {}).get("linear"):
        raise RunError(
            f"{folder} is a linear model of words, because no trained network was better on dev: "
            "it has no network to start from. Give the folder of the run, whose stage 1 has one, "
            "or train it with --finetune.wide false."
        )
    with saved.damage_is_clear():
        _shapes_with_encoder(saved.weights[0], saved.encoder, saved.shape)
    return OfModel(folder.resolve(), saved.encoder, saved.shape, saved.vocabulary, saved)


def _shapes_with_encoder(weights: Path, encoder: str, shape: Shape) -> dict[str, tuple[int, ...]]:
    """The shapes of all tensors of a file; raises ValueError where the encoder's do not fit."""
    shapes = shapes_in(weights)
    with shapes_alone():
        described = new_encoder(encoder, shape)
    if problems := misfits(described, "encoder.", shapes):
        raise ValueError(problems[0])
    return shapes


def title_of(start: Path) -> str:
    """The readable name of a start: the other run, the name on the hub, or the folder itself."""
    if start.parent.name == "snapshots":
        return start.parent.parent.name.removeprefix("models--").replace("--", "/")
    if start.name == "model":
        return f"fine-tuned {start.parent.name}"
    if is_stage1(start):
        return start.parent.name
    return start.name


def _has_place_for(own: dict[str, Tensor], weights: dict[str, Tensor]) -> bool:
    """Whether a module with its own weights has one of the same shape for each of others."""
    return all(name in own and own[name].shape == tensor.shape for name, tensor in weights.items())


def _filled_up(weights: dict[str, Tensor], module: nn.Module) -> dict[str, Tensor]:
    """The weights with the last rows of the module's own where they have fewer (token types)."""
    own = module.state_dict()
    filled = dict(weights)
    for name, tensor in weights.items():
        if name in own and len(tensor) < len(own[name]):
            filled[name] = torch.cat((tensor.to(own[name].device), own[name][len(tensor) :]))
    return filled
