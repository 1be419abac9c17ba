"""A run folder: the names of its files, the run that a folder belongs to, and its trained models.

The first training of stage 1 is the folder stage1 and its fine-tunings are stage2/seed-N; the
second is stage1-2 with stage2-2/seed-N, and so on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasklm.errors import RunError
from tasklm.recipe.schema import Recipe
from tasklm.recipe.toml import load
from tasklm.storage.files import ARTEFACT, read_json

RECIPE, MANIFEST = "recipe.toml", "manifest.json"  # the settings, and the machine it ran on
SCORES, REPORT, CLOCK = "scores.json", "report.html", "clock.json"
EVENTS, LOG = "events.jsonl", "log.txt"  # of its progress, for programs and for people
PROGRESS = "progress.json"  # the current work, for the watch page
MODEL, ENSEMBLE = "model", "ensemble"  # the folders that people keep
SELECTED = Path("selected", "selected.parquet")  # the passages that were selected
SUMMARY = "summary.json"  # of a stage: its result and its cost
CURVE = "curve.json"  # of a stage: its learning curve
ON_TRAIN = "train score"  # in that of stage 2: on some training examples (finetune.scored_examples)
DEV_OF = "dev: "  # in a learning curve, before the name of one of several tasks: its own score
UPDATES, UPDATE = "updates", "update"  # the folder of updates; their number, about a model
COMPARE = "compare"  # the folder of the ablations, each a run
SUPERVISED = "supervised"  # the ablation without raw text, and its folder there
_STAGE1 = re.compile(r"stage1(-[2-9]|-[1-9]\d+)?")


def is_run(folder: Path) -> bool:
    """Whether a folder is a run, even one that has not started yet."""
    return (folder / RECIPE).exists()


def find_run(folder: Path) -> Path | None:
    """The run that a folder is, or whose model, ensemble or stage 1 it is; None for any other
    folder.

    A recipe beside a model is not enough to make a run: it may be the user's own.
    """
    if is_run(folder):
        return folder
    for whole in (folder.absolute(), folder.resolve()):
        run = whole.parent
        begun = (run / RECIPE).is_file() and (run / MANIFEST).is_file()
        if begun and (whole.name in (MODEL, ENSEMBLE) or is_stage1(whole)):
            return run
    return None


def number_of_update(run: Path) -> int:
    """The update that the model in model/ comes from; 0: the first training."""
    config = run / MODEL / "config.json"
    values = read_json(config) if config.is_file() else None
    number = ((values or {}).get("about") or {}).get(UPDATE, 0)
    if type(number) is not int or number < 0:
        raise RunError(
            f"{config} is damaged: about.{UPDATE} is {number!r}. Rebuild it: tasklm evaluate {run}"
        )
    return number


def described_by(run: Path) -> Path:
    """The folder with recipe, scores and bill of the model in model/: that of the update which it
    comes from, or the run itself.
    """
    folder = run / UPDATES / str(number_of_update(run))
    return folder if is_run(folder) else run


def recipe_of(run: Path) -> Recipe:
    """The recipe of a run."""
    return load(run / RECIPE)


def stage1_name(training: int) -> str:
    """The folder of a training of stage 1 in its run, counted from 1."""
    return _numbered("stage1", training)


def stage2_name(training: int) -> str:
    """The folder, in its run, of the fine-tunings of a training of stage 1."""
    return _numbered("stage2", training)


def is_stage1(folder: Path) -> bool:
    """Whether a folder has the name of a training of stage 1."""
    return _STAGE1.fullmatch(folder.name) is not None


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}-{number}"


@dataclass(frozen=True)
class Seed:
    """A fine-tuned model of a run: fine-tuning `stage2` of training `stage1`, counted from 1."""

    run: Path
    stage1: int
    stage2: int

    @property
    def training(self) -> Path:
        """The folder of its stage 1."""
        return self.run / stage1_name(self.stage1)

    @property
    def folder(self) -> Path:
        """The folder of its stage 2."""
        return self.run / stage2_name(self.stage1) / f"seed-{self.stage2}"

    @property
    def weights(self) -> Path:
        """The weights of its best epoch on dev."""
        return self.folder / "best.safetensors"

    @property
    def key(self) -> str:
        """The key of its stage 2, which hashes everything before it."""
        return str(read_json(self.folder / ARTEFACT)["key"])

    def summary(self) -> dict[str, Any]:
        """What its stage 2 cost, and its score on dev."""
        values: dict[str, Any] = read_json(self.folder / SUMMARY)
        return values


def seeds_of(run: Path, trainings: int, tunings: int) -> list[Seed]:
    """All seeds of a run: those of the first training of stage 1 first."""
    return [
        Seed(run, number // tunings + 1, number % tunings + 1)
        for number in range(trainings * tunings)
    ]


def trainings_of(seeds: Sequence[Seed]) -> int:
    """How many times stage 1 was trained for these seeds."""
    return len({seed.stage1 for seed in seeds})


def by_training(seeds: Sequence[Seed]) -> list[list[Seed]]:
    """The seeds of each training of stage 1."""
    trainings: dict[int, list[Seed]] = {}
    for seed in seeds:
        trainings.setdefault(seed.stage1, []).append(seed)
    return list(trainings.values())


def best_seed(seeds: Sequence[Seed]) -> Seed:
    """The seed with the highest dev score; the first in a tie."""
    return max(seeds, key=lambda seed: float(seed.summary()["dev"]))


def seed_title(seed: Seed, seeds: Sequence[Seed]) -> str:
    """A readable name for a seed of a run: 'seed 2', or 'seed 3.2' of training 3."""
    if trainings_of(seeds) == 1:
        return f"seed {seed.stage2}"
    return f"seed {seed.stage1}.{seed.stage2}"


def shipped_stage1(run: Path) -> Path:
    """The stage 1 of the model that a run keeps in model/; before there is one, the first."""
    config = run / MODEL / "config.json"
    values = read_json(config) if config.is_file() else None
    about = (values or {}).get("about") or {}
    number = about.get("stage1", 1)  # models of earlier versions lack it: they had one stage 1
    if not isinstance(number, int) or number < 1:
        raise RunError(
            f"{config} is damaged: about.stage1 is {number!r}. Rebuild it: tasklm evaluate {run}"
        )
    folder = run / stage1_name(number)
    if not folder.is_dir() and (run / stage1_name(1)).is_dir():
        raise RunError(
            f"{run} lacks {folder.name}, which its model was built from. "
            f"Train it again: tasklm train {run}"
        )
    return folder
