"""How far a run goes in its minutes: with text, on the task's data, or with the linear model alone.

That depends on the clock, so it is decided once: after the linear model, in the artefact `scope`,
and once more when the corpus is read, in the plan. A command that is repeated reads what was
decided.
"""

from __future__ import annotations

from pathlib import Path

from tasklm.budget import rules
from tasklm.budget.reading import reading_seconds
from tasklm.budget.scope import TEXT, Minutes, Scope, scope_within
from tasklm.pipeline.context import Run, TaskData, sections
from tasklm.pipeline.linear_part import fitted_wide
from tasklm.recipe.schema import Recipe
from tasklm.recipe.toml import absolute
from tasklm.run_folder import SELECTED
from tasklm.storage.checksums import damage_is_clear
from tasklm.storage.files import digest, read_json, write_json
from tasklm.tasks.several import turns_of

NAME = "scope"


def decided_scope(run: Run, task: TaskData) -> Scope:
    """What the run does with the time left after the linear model; decided once and kept."""
    recipe = absolute(run.recipe)
    settings = sections(recipe, "select", "train", "finetune", "budget")
    without = [recipe.data.without] if recipe.data.without else []
    key = digest([NAME, task.key, recipe.data.corpus, *settings, *without])

    def decide(folder: Path) -> None:
        write_json(folder / "scope.json", _after_linear_model(run, task).to_dict())

    path = run.artefacts.build(NAME, key, decide) / "scope.json"
    with damage_is_clear(path):
        return Scope.from_dict(read_json(path))


def scope_after_reading(run: Run, task: TaskData) -> Scope:
    """The scope of a run, unless reading the corpus took so long that the rest does not fit."""
    if run.scope.reach != TEXT or not is_timed(run.recipe):
        return run.scope
    return _within(run, task, rules.SEARCH_SHARE * _reading(run.recipe), run.scope.slowness)


def is_timed(recipe: Recipe) -> bool:
    """Whether given minutes, and no fixed number of steps, end a run."""
    return recipe.budget.minutes is not None and recipe.train.steps is None


def may_stay_linear(run: Run, task: TaskData) -> bool:
    """Whether the linear model may remain alone: there is one of all tasks, and no epochs are asked
    for.
    """
    settings = run.recipe.finetune
    if turns_of(task.task) or not settings.wide or settings.epochs:
        return False
    return fitted_wide(run, task).wide is not None


def time_left(run: Run, seconds: float) -> float:
    """Seconds of a budget that are left for training: scores and report come after it."""
    return Minutes(seconds, run.seconds(), run.scope.slowness).left


def _after_linear_model(run: Run, task: TaskData) -> Scope:
    recipe = run.recipe
    if recipe.budget.minutes is None:
        return Scope()
    if recipe.train.steps is not None:  # the clock decides nothing else, and so not this
        return scope_within(Minutes(60 * recipe.budget.minutes, 0.0), _reading(recipe), False)
    if may_stay_linear(run, task):
        wide = fitted_wide(run, task).wide
        assert wide is not None
        for examples in task.held_out.values():
            wide.outputs(examples)  # needed for the scores in any case: it counts as spent
    return _within(run, task, _reading(recipe), run.clock.slowness())


def _within(run: Run, task: TaskData, text: float, slowness: float) -> Scope:
    """The scope that the time left pays for; text that is already selected is used."""
    if (run.folder / SELECTED).exists():
        return Scope(TEXT, "", slowness)
    assert run.recipe.budget.minutes is not None
    minutes = Minutes(60 * run.recipe.budget.minutes, run.seconds(), slowness)
    return scope_within(minutes, text, may_stay_linear(run, task))


def _reading(recipe: Recipe) -> float:
    """Seconds for the text on an idle machine; 0 if there is none, or other machines read it."""
    if not recipe.data.corpus or not recipe.uses_corpus or recipe.select.engine != "local":
        return 0.0
    return reading_seconds(recipe.data)
