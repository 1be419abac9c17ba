"""What describes the trained model of a folder: all of it but the weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasklm.budget.costs import learns_positions
from tasklm.encoders.base import Shape
from tasklm.errors import RunError
from tasklm.models.damage import damage_is_clear
from tasklm.recipe.image import IMAGE
from tasklm.recipe.model_sections import LONGEST_ROW, MOST_SEEDS, SHORTEST_ROW
from tasklm.storage.checksums import require_whole
from tasklm.storage.files import read_json
from tasklm.storage.safe_reading import MOST_JSON, is_there
from tasklm.tasks.base import TASKS, Task
from tasklm.tokens.tokenizer import Vocabulary

FORMAT = 3


@dataclass(frozen=True)
class SavedModel:
    """The contents of a trained model's folder besides its weights."""

    folder: Path
    encoder: str
    shape: Shape
    kind: str  # of its task
    vocabulary: Vocabulary
    weights: tuple[Path, ...]  # one file per model
    config: dict[str, Any]

    @property
    def is_linear(self) -> bool:
        """Whether the linear model of words in it answers alone, and the network beside it is
        silent.
        """
        about = self.config.get("about")
        return isinstance(about, dict) and about.get("linear") is True

    def task(self) -> Task:
        """The task that is described; raises ValueError, among others, if it is impossible."""
        return TASKS.get(self.kind).from_dict(self.config["task"])

    @contextmanager
    def damage_is_clear(self) -> Iterator[None]:
        """Turns errors of unreadable or mismatched weights into a clear message."""
        with damage_is_clear(self.folder):
            yield


def read_saved_model(folder: Path) -> SavedModel:
    """The description of the model in a folder; the weights are not yet read."""
    path = folder / "config.json"
    if not is_there(path):
        raise RunError(
            f"{folder} contains no model (no config.json). Give the folder 'model' of a finished "
            "run."
        )
    with damage_is_clear(folder):
        config = read_json(path, MOST_JSON)
        _refuse_images(folder, config)
        version = config.get("format") if isinstance(config, dict) else None
        if version != FORMAT:
            raise RunError(
                f"{path} has format {repr(version)[:20]}, but this version reads {FORMAT}. "
                "Train the model again."
            )
        require_whole(folder, "config.json")
        shape = Shape.from_dict(config["shape"])
        vocabulary = Vocabulary.load(folder / "tokenizer.json")
        check_rows(str(config["encoder"]), shape, vocabulary, config["length"])
        return SavedModel(
            folder=folder,
            encoder=str(config["encoder"]),
            shape=shape,
            kind=str(config["task"]["kind"]),
            vocabulary=vocabulary,
            weights=weight_files(folder, config.get("models", 1)),
            config=config,
        )


def _refuse_images(folder: Path, config: Any) -> None:
    """Raises RunError for a model of images, which is read elsewhere."""
    task = config.get("task") if isinstance(config, dict) else None
    if isinstance(task, dict) and task.get("kind") == IMAGE:
        problem = f"{folder} is a model of images, and this is for text"
        ways = "tasklm predict, explain, export or serve"
        raise RunError(f"{problem}. Use {ways} with it, or TaskLM.load(…).predict in Python.")


def weight_files(folder: Path, count: Any) -> tuple[Path, ...]:
    """The files of so many models; raises ValueError where there cannot be so many."""
    if type(count) is not int or not 1 <= count <= MOST_SEEDS:
        raise ValueError(f"the number of models is not a whole number from 1 to {MOST_SEEDS}")
    if count == 1:
        return (folder / "model.safetensors",)
    return tuple(folder / f"model-{number}.safetensors" for number in range(1, count + 1))


def check_length(length: Any) -> None:
    """Raises ValueError if rows cannot have this length."""
    if type(length) is not int or not SHORTEST_ROW <= length <= LONGEST_ROW:
        raise ValueError(f"length is not a whole number from {SHORTEST_ROW} to {LONGEST_ROW:,}")


def check_rows(encoder: str, shape: Shape, vocabulary: Vocabulary, length: Any) -> None:
    """Raises ValueError if an encoder is too small for its vocabulary or rows."""
    if len(vocabulary) > shape.vocabulary:
        raise ValueError(
            f"the tokenizer has {len(vocabulary):,} tokens, but the encoder has "
            f"{shape.vocabulary:,}"
        )
    check_length(length)
    if learns_positions(encoder) and length > shape.positions:
        raise ValueError(
            f"rows have {length:,} tokens, but the encoder has {shape.positions:,} positions"
        )
