"""Where stage 1 starts from in place of random weights (`train.start`): what another training left.

That is another run of tasklm (its stage 1, or its fine-tuned model), or a checkpoint in Hugging
Face's layout. The encoder goes on as it is, and the vocabulary with it. The objective's own parts
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

from tasklm.budget.costs import ARCHITECTURES
from tasklm.encoders.base import Shape
from tasklm.encoders.checkpoints.folder import (
    TOKENIZER,
    Checkpoint,
    find_checkpoint,
    read_checkpoint,
)
from tasklm.encoders.checkpoints.weight_files import finite_weights, misfits, shapes_in
from tasklm.encoders.initial_weights import shapes_alone
from tasklm.encoders.shapes import SIZES, padded_vocabulary, shape_of
from tasklm.errors import RecipeError, RunError
from tasklm.models.language_model import Description, read_description, under
from tasklm.models.task_model import SavedModel, damage_is_clear, new_encoder, read_saved_model
from tasklm.objectives.base import OBJECTIVES
from tasklm.recipe.model_sections import Model, Tokens, Train
from tasklm.recipe.schema import Recipe
from tasklm.run_folder import is_stage1
from tasklm.storage.files import digest, file_digest
from tasklm.storage.safe_reading import is_there, read_json_file
from tasklm.tokens.tokenizer import Vocabulary

NUMBERS = (
    "layers",
    "width",
    "heads",
    "feedforward",
    "embedding",
)  # keys of [model] that say an encoder's shape


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
        return {
            **{name: getattr(self.shape, name) for name in NUMBERS},
            "embedding": self.shape.token_width,
        }

    @property
    def rotary(self) -> bool:
        """Whether the encoder computes its positions, so that there may be any number of them."""
        return ARCHITECTURES[self.encoder].rotary

    def shape_for(self, length: int) -> Shape:
        """The shape of an encoder that reads rows of `length` tokens and can
        take over the weights.
        """
        return dataclasses.replace(self.shape, positions=length) if self.rotary else self.shape

    @abstractmethod
    def digest(self) -> str:
        """A hash of the weights."""

    @abstractmethod
    def put_into(self, module: Any, objective: str) -> str:
        """Puts the weights into a freshly drawn joint model; returns what was
        taken, for a person.
        """

    @abstractmethod
    def problems(self, asked: Train) -> list[str]:
        """Returns why the objective that is asked for cannot go on here."""


@dataclass(frozen=True)
class OfRun(Start):
    """What stage 1 of another run left."""

    about: Description
    shapes: dict[str, tuple[int, ...]]  # of all tensors in its file

    def digest(self) -> str:
        """A hash of the weights."""
        return file_digest(self.about.weights)

    def put_into(self, module: Any, objective: str) -> str:
        """Puts in the encoder, and what the objective owns where it is the same objective."""
        with self.about.damage_is_clear():
            weights = finite_weights(self.about.weights)
        module.encoder.load_state_dict(under("encoder.", weights))
        if objective != self.about.settings.objective:
            return (
                f"stage 1 starts from the encoder of {self.folder} "
                f"({self.about.settings.objective}); what is {objective}'s own is new"
            )
        module.objective.load_state_dict(under("objective.", weights))
        return (
            f"stage 1 starts from the encoder of "
            f"{self.folder} and from what is {objective}'s own there"
        )

    def problems(self, asked: Train) -> list[str]:
        """Returns why the objective's own parts, which are the same kind of parts there, cannot go
        on here.
        """
        before = self.about.settings
        if asked.objective != before.objective:
            return []
        with shapes_alone():
            objective = OBJECTIVES.get(asked.objective)(
                self.encoder, self.shape, self.vocabulary, asked
            )
        if not (problems := misfits(objective, "objective.", self.shapes)):
            return []
        if asked.generator != before.generator:
            return [
                (
                    f"train.generator = {asked.generator}, "
                    f"but train.start has {before.generator}: {self.folder}; set it to that"
                )
            ]
        return [
            (
                f"what is {asked.objective}'s own does not fit "
                f"that of train.start, {self.folder}: {problems[0]}"
            )
        ]


@dataclass(frozen=True)
class OfModel(Start):
    """The encoder of a fine-tuned model, whatever kind its task is of; it has no parts of an
    objective.
    """

    saved: SavedModel

    def digest(self) -> str:
        """A hash of the weights."""
        return file_digest(self.saved.weights[0])

    def put_into(self, module: Any, objective: str) -> str:
        """Puts in the encoder."""
        with self.saved.damage_is_clear():
            weights = finite_weights(self.saved.weights[0])
        module.encoder.load_state_dict(under("encoder.", weights))
        return (
            f"stage 1 starts from the encoder of {self.folder}, "
            f"fine-tuned ({self.saved.kind}); what is {objective}'s own is new"
        )

    def problems(self, asked: Train) -> list[str]:
        """What the objective itself refuses; all of its parts are new."""
        return _refused(self, asked)


@dataclass(frozen=True)
class OfCheckpoint(Start):
    """A checkpoint in Hugging Face's layout; token types that it has no row for keep the rows that
    were drawn.
    """

    checkpoint: Checkpoint

    def digest(self) -> str:
        """A hash of the weights and of the configuration."""
        return digest(
            [file_digest(file) for file in (self.folder / "config.json", *self.checkpoint.files)]
        )

    def put_into(self, module: Any, objective: str) -> str:
        """Puts in the encoder, and those of its heads that the objective has a place for."""
        encoder, heads = self.checkpoint.weights()
        module.encoder.load_state_dict(_filled_up(encoder, module.encoder))
        own = module.objective.state_dict()
        new, taken = set(own), ""
        for title, head in heads.items():
            whole = _filled_up(head, module.objective)
            if all(
                name in own and own[name].shape == tensor.shape for name, tensor in whole.items()
            ):
                own = {**own, **whole}
                new = new - whole.keys()
                taken = f"{taken} and from its {title}"
        module.objective.load_state_dict(own)
        said = (
            f"stage 1 starts from the encoder of "
            f"{self.folder} ({self.checkpoint.config['model_type']}){taken}"
        )
        if new:
            said += f"; what {'else ' if taken else ''}is {objective}'s own is new"
            said += (
                ""
                if taken
                else f": the checkpoint has no head for it (it has {', '.join(heads) or 'none'})"
            )
        fresh = len(self.vocabulary) - len(encoder["token.weight"])
        return said + (
            f"; {fresh} types of its tokenizer have no embedding there and get new ones"
            if fresh > 0
            else ""
        )

    def problems(self, asked: Train) -> list[str]:
        """What the objective itself refuses; heads that do not fit are new."""
        return _refused(self, asked)


def _refused(start: Start, asked: Train) -> list[str]:
    """Returns why the objective cannot be made new for an encoder, such as whole words of a
    vocabulary that marks none.
    """
    try:
        with shapes_alone():
            OBJECTIVES.get(asked.objective)(start.encoder, start.shape, start.vocabulary, asked)
    except RecipeError as error:
        return error.problems
    return []


def starting_weights(where: Path) -> Start:
    """What there is to start from: stage 1 of a run (its folder, or `stage1` in it), a fine-tuned
    model (`model` in it, or what TaskLM.save wrote), or a checkpoint (a folder or a name of the
    hub).

    The weights are looked at, not yet read.
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
    """Whether a folder holds a fine-tuned model by what its config.json has: a task, and no
    objective.
    """
    path = where / "config.json"
    with damage_is_clear(where):
        config = read_json_file(path) if is_there(path) else None
    return isinstance(config, dict) and "task" in config and "objective" not in config


def _of_model(folder: Path) -> OfModel:
    saved = read_saved_model(folder)
    if len(saved.weights) > 1:
        problem = (
            f"{folder} holds {len(saved.weights)} models "
            f"that answer together, and stage 1 goes on from one"
        )
        raise RunError(
            f"{problem}. Give the folder 'model' beside it, which holds the best of them."
        )
    if (saved.config.get("about") or {}).get("linear"):
        problem = (
            f"{folder} is a linear model of words, "
            f"since training brought nothing better on dev: it has no network to go on from"
        )
        raise RunError(
            f"{problem}. Give the folder of the run, "
            f"whose stage 1 has one, or train it with --finetune.wide false."
        )
    with saved.damage_is_clear():
        _shapes_with_encoder(saved.weights[0], saved.encoder, saved.shape)
    return OfModel(folder.resolve(), saved.encoder, saved.shape, saved.vocabulary, saved)


def _shapes_with_encoder(weights: Path, encoder: str, shape: Shape) -> dict[str, tuple[int, ...]]:
    """The shapes of all tensors of a file; raises ValueError where those of the encoder are not as
    described.
    """
    shapes = shapes_in(weights)
    with shapes_alone():
        described = new_encoder(encoder, shape)
    if problems := misfits(described, "encoder.", shapes):
        raise ValueError(problems[0])
    return shapes


def title_of(start: Path) -> str:
    """What people call the folder that a run started from: the other run, the name on the hub, or
    the folder itself.
    """
    if start.parent.name == "snapshots":
        return start.parent.parent.name.removeprefix("models--").replace("--", "/")
    if start.name == "model":
        return f"fine-tuned {start.parent.name}"
    return start.parent.name if is_stage1(start) else start.name


def _filled_up(weights: dict[str, Tensor], module: nn.Module) -> dict[str, Tensor]:
    """The weights with the last rows of the module's own where they have fewer: those of token
    types.
    """
    own = module.state_dict()
    fewer = {
        name: tensor
        for name, tensor in weights.items()
        if name in own and len(tensor) < len(own[name])
    }
    return {
        **weights,
        **{
            name: torch.cat((tensor.to(own[name].device), own[name][len(tensor) :]))
            for name, tensor in fewer.items()
        },
    }


def started(recipe: Recipe, folder: Path) -> Recipe:
    """The recipe of a run in `folder` with the vocabulary and the encoder that it starts from
    written into it.

    Raises RecipeError where it asks for others. A key at its default asks for nothing.
    """
    if not recipe.train.start:
        return recipe
    start = starting_weights(Path(recipe.train.start))
    own = start.folder.parent == folder.resolve() and (
        start.folder.name == "model" or is_stage1(start.folder)
    )
    problems = ["train.start is this run itself; choose another folder with --out"] if own else []
    problems += (
        _other_vocabulary(recipe.tokens, start)
        + _other_encoder(recipe.model, start)
        + start.problems(recipe.train)
    )
    length, most = recipe.tokens.length, start.shape.positions
    if length is not None and length > most and not start.rotary:
        problems.append(
            f"tokens.length = {length}: the encoder of "
            f"train.start has {most} positions; set it to {most} or less"
        )
    if problems:
        raise RecipeError(problems)
    size = recipe.model.size
    if size == "auto":  # a name for people: all that it stands for is written beside it
        layers_and_width = start.numbers["layers"], start.numbers["width"]
        size = next(
            (name for name, numbers in SIZES.items() if numbers == layers_and_width), "tiny"
        )
    return recipe.changed(
        tokens={"kind": "file", "file": str(start.folder / TOKENIZER), "vocabulary": None},
        model={"encoder": start.encoder, "size": size, **start.numbers},
        train={"start": str(start.folder)},
    )


def _other_vocabulary(asked: Tokens, start: Start) -> list[str]:
    has, problem = start.vocabulary, ""
    if asked.kind == "file":
        if (
            asked.file
            and Vocabulary.load(Path(asked.file)).tokenizer.to_str() != has.tokenizer.to_str()
        ):
            problem = f"tokens.file = {asked.file!r} is another vocabulary"
    elif asked.kind != Tokens().kind:
        problem = f"tokens.kind = {asked.kind!r} asks for a new vocabulary"
    elif asked.lowercase is False:
        problem = "tokens.lowercase = false asks for a new vocabulary"
    if not problem and asked.vocabulary not in (None, len(has)):
        problem = f"tokens.vocabulary = {asked.vocabulary} asks for a new vocabulary"
    return (
        [
            (
                f"{problem}, but with train.start it is that of "
                f"{start.folder} ({len(has):,} types); leave it out"
            )
        ]
        if problem
        else []
    )


def _other_encoder(asked: Model, start: Start) -> list[str]:
    if asked.encoder not in (Model().encoder, start.encoder):
        return [
            (
                f"model.encoder = {asked.encoder!r}, "
                f"but train.start has {start.encoder!r}: {start.folder}; leave it out"
            )
        ]
    wanted = {name: value for name in NUMBERS if (value := getattr(asked, name)) is not None}
    if asked.size != "auto":
        shape = shape_of(dataclasses.replace(asked, encoder=start.encoder), asked.size, 1, 1)
        wanted = {
            **{name: getattr(shape, name) for name in NUMBERS},
            "embedding": shape.token_width,
        }
    other = [name for name, value in wanted.items() if value != start.numbers[name]]
    if not other:
        return []
    ours, theirs = (
        ", ".join(f"{name} {numbers[name]}" for name in other)
        for numbers in (wanted, start.numbers)
    )
    size = "" if asked.size == "auto" else f" (model.size = {asked.size!r})"
    return [
        (
            f"model: {ours}{size}, but the encoder of "
            f"train.start has {theirs}: {start.folder}; leave them out"
        )
    ]
