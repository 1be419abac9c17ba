from __future__ import annotations

from pathlib import Path

import pytest

from tasklm.recipe.data_sections import Kind
from tasklm.recipe.toml import load
from tasklm.tasks.base import TASKS
from tasklm.tasks.examples import Example
from tasklm.tasks.readers.several import named_path

FOLDER = Path(__file__).parents[2] / "recipes" / "glue"
EXPECTED = {  # the scores of "ELECTRA" (arXiv 2003.10555), section 3.1
    "cola": ("classify", "matthews"),
    "sst2": ("classify", "accuracy"),
    "mrpc": ("classify", "accuracy"),
    "stsb": ("regress", "spearman"),
    "rte": ("classify", "accuracy"),
    "qnli": ("classify", "accuracy"),
    "qqp": ("classify", "accuracy"),
    "mnli": ("classify", "accuracy"),
    "wnli": ("classify", "accuracy"),
}


def test_there_is_a_recipe_for_every_task_of_glue() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_each_recipe_has_a_kind_and_a_metric_that_the_kind_has(name: str) -> None:
    recipe = load(FOLDER / f"{name}.toml")
    assert (recipe.data.kind, recipe.evaluate.metric) == EXPECTED[name]
    assert recipe.evaluate.metric in TASKS.get(recipe.data.kind).metrics
    text = (FOLDER / f"{name}.toml").read_text(encoding="utf-8")
    assert f"tasklm run recipes/glue/{name}.toml --data.train" in text


@pytest.mark.parametrize("name", ["mrpc", "qqp", "stsb"])
def test_the_second_metrics_of_the_papers_are_there(name: str) -> None:
    train = [Example(("a", "b"), label) for label in (("0", "1") if name != "stsb" else (0.0, 1.0))]
    metrics = TASKS.get(EXPECTED[name][0]).from_examples(train, Kind()).metrics
    assert ("pearson" if name == "stsb" else "f1") in metrics


def test_the_recipe_of_all_tasks_has_their_metrics() -> None:
    recipe = load(FOLDER.with_suffix(".toml"))
    names = [named_path(entry)[0] for entry in recipe.several.tasks]
    assert set(names) == set(EXPECTED) - {"wnli"} and len(names) == 8
    parts = recipe.evaluate.metric.split(",")
    named = dict(part.split("=") for part in parts[1:])
    metrics = {name: named.get(name, parts[0]) for name in names}
    assert metrics == {name: EXPECTED[name][1] for name in names}
    assert recipe.several.power == 0.75 and recipe.data.leaks == "drop"
