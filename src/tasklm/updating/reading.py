"""What an update reads: the run and the model that it begins from, and all labelled data."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasklm.bill.record import read_bill
from tasklm.errors import DataError, RecipeError, RunError
from tasklm.models.saved_model import SavedModel, read_saved_model
from tasklm.pipeline.inputs import Inputs
from tasklm.recipe.schema import Recipe, from_dict, to_dict, with_overrides
from tasklm.recipe.toml import absolute, cache_folder
from tasklm.run_folder import MODEL, SCORES, described_by, is_run, number_of_update, recipe_of
from tasklm.storage.files import digest
from tasklm.storage.safe_reading import home_path
from tasklm.tasks.base import TASKS, Task
from tasklm.tasks.baselines.wide import Wide
from tasklm.tasks.baselines.wide_parts import load_wide
from tasklm.tasks.examples import Example, Splits
from tasklm.tasks.readers.splits import read_splits
from tasklm.tasks.several import members_of

FORMAT = 1  # raise it when updates change


@dataclass(frozen=True)
class Request:
    """What an update is asked to take in."""

    train: str = ""
    dev: str = ""
    test: str = ""
    corpus: tuple[str, ...] = ()
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # recipe keys


@dataclass(frozen=True)
class Base:
    """The model that an update begins from."""

    run: Path
    folder: Path  # of its recipe, scores and bill: the run, or an earlier update
    number: int  # of that; 0: the run
    saved: SavedModel
    recipe: Recipe

    @property
    def model(self) -> Path:
        """The folder of the model."""
        return self.run / MODEL

    @functools.cached_property
    def task(self) -> Task:
        """The task that it knows."""
        return self.saved.task()

    @functools.cached_property
    def wide(self) -> Wide | None:
        """Its linear model of words, if it has one."""
        wide = load_wide(self.model)
        assert wide is None or isinstance(wide, Wide)
        return wide


@dataclass(frozen=True)
class Grounds:
    """All labelled data of an update, and what of it is new."""

    task: Task
    splits: Splits
    metric: str
    fresh: NDArray[np.bool_]  # which examples of train are new
    new_classes: list[str]


def base_of(run: Path) -> Base:
    """The model of a finished run; raises RunError or RecipeError, with the remedy, for others."""
    if not is_run(run):
        problem = f"{run} is not a run folder (no recipe.toml)"
        raise RunError(f"{problem}. Give the folder of a finished run, such as runs/first.")
    if not (run / MODEL / "config.json").exists() or not (run / SCORES).exists():
        raise RunError(f"{run} is not finished. Finish it first: tasklm report {run}")
    saved, folder = read_saved_model(run / MODEL), described_by(run)
    recipe = recipe_of(folder)
    if members_of(saved.task()):
        raise RecipeError(
            [
                f"{run} has a model of several tasks, which cannot be updated in place; add the "
                "rows to the files of their task and train again: tasklm fit …"
            ]
        )
    if recipe.data.share < 1.0:
        raise RecipeError(
            [
                f"{run} used a share of its labels (data.share), and an update would use all; "
                "train again with more of them: tasklm fit … --data.share 1"
            ]
        )
    return Base(run, folder, number_of_update(run), saved, recipe)


def recipe_for(base: Base, request: Request) -> Recipe:
    """The recipe of the run with the new files beside its own."""
    data = base.recipe.data
    own = dataclasses.asdict(data)
    if request.train:
        own["more"] = (*data.more, request.train)
    if request.dev:
        own["more_dev"] = (*data.more_dev, request.dev)
    if request.test:
        own["more_test"] = (*data.more_test, request.test)
    own["corpus"] = (*data.corpus, *request.corpus)
    values = {**to_dict(base.recipe), "data": own}
    recipe = absolute(from_dict(with_overrides(values, request.settings)))
    cache = str(cache_folder(base.recipe, base.run.absolute()))
    return recipe.changed(hardware={"cache": cache})


def data_key(recipe: Recipe, request: Request, inputs: Inputs) -> str:
    """A hash of the new files' contents and of the settings: not of where the files lie."""
    given = [request.train, request.dev, request.test]
    contents: list[Any] = [inputs.content(home_path(one)) if one else "" for one in given]
    for pattern in request.corpus:
        path = home_path(pattern)
        contents.append(inputs.content(path) if path.exists() else pattern)
    return digest([FORMAT, contents, sorted(map(str, request.settings.items()))])


def require_given(request: Request) -> None:
    """Raises for a request without anything to learn, or with files that are not there."""
    if not request.train and not request.corpus:
        raise RecipeError(
            ["there is nothing to learn; give --train MORE (labelled), or --corpus MORE/ (text)"]
        )
    for path in filter(None, (request.train, request.dev, request.test)):
        if not home_path(path).exists():
            raise DataError(
                "there is no such file or folder", file=path, remedy="Give one that is there."
            )


def require_unchanged(base: Base, inputs: Inputs) -> None:
    """Raises RunError if a labelled file of the run is gone, or is not what was learnt."""
    for source in read_bill(base.model).labelled:
        for file in source.files:
            path, problem = Path(file["path"]), ""
            if not path.is_file():
                problem = "is gone"
            else:
                inputs.content(path)
                if inputs.files[path].sha256 != file["sha256"]:
                    problem = "has changed since the run"
            if problem:
                raise RunError(
                    f"{path} {problem}: an update also learns the earlier examples. Restore the "
                    "file, give new rows in a file of their own, or train again: tasklm fit …"
                )


def grounds_of(base: Base, recipe: Recipe, request: Request) -> Grounds:
    """All labelled data, read by the recipe with the new files."""
    splits = read_splits(recipe.data)
    task = TASKS.get(recipe.data.kind).from_examples(splits.train, recipe.kind)
    before = base.task
    _require_same(before, task, base, request)
    fresh = np.zeros(len(splits.train), bool)
    if request.train:
        fresh[len(fresh) - splits.added :] = True
        if not fresh.any() and not request.corpus:
            raise DataError(
                "it has no example that the run does not have, so there is nothing to learn",
                file=request.train,
                remedy="Give a file with new rows.",
            )
    known = set(before.labels)
    metric = str(base.saved.config["about"]["metric"])
    return Grounds(task, splits, metric, fresh, [one for one in task.labels if one not in known])


def _require_same(before: Task, now: Task, base: Base, request: Request) -> None:
    """Raises if the new examples change what the outputs of the model mean."""
    old, new = before.to_dict(), now.to_dict()
    names = [
        name
        for name in old.keys() & new.keys()
        if name not in ("labels", "thresholds") and old[name] != new[name]
    ]
    if not names or (base.saved.is_linear and {"low", "high", "options"}.issuperset(names)):
        return
    changed = ", ".join(f"{name}: {old[name]!r} → {new[name]!r}" for name in sorted(names))
    raise DataError(
        f"with these rows the task itself changes ({changed}), which its network cannot follow",
        file=request.train,
        remedy="Correct or leave out such rows, or train again with all of them: tasklm fit …",
    )


def is_from(example: Example, path: str) -> bool:
    """Whether an example was read from a file, or from one in a folder."""
    return _is_in(example.file, path)


@functools.cache
def _is_in(file: str, path: str) -> bool:
    return Path(file).absolute().is_relative_to(home_path(path).absolute())


def few_for_dev(grounds: Grounds) -> Sequence[str]:
    """New classes without an example in dev, so that nothing judges them there."""
    task = grounds.task
    seen = {name for one in grounds.splits.dev for name in task.classes(one.label)}
    return [name for name in grounds.new_classes if name not in seen]
