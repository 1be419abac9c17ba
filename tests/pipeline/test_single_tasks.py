"""How long the model of a single task is fine-tuned, beside one of several."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tasklm.budget.rules import epochs_for
from tasklm.pipeline.single_tasks import _epochs
from tasklm.recipe.schema import Recipe

EXAMPLES, OWN = 4000, 1000


@pytest.mark.parametrize(
    ("given", "trained", "expected"),
    [
        (7, 7, 7),  # as the recipe says
        (7, 3, 7),
        (None, epochs_for(EXAMPLES, 32), None),  # the usual number for its own examples
        (None, epochs_for(EXAMPLES, 32) // 2, epochs_for(OWN, 32) / 2),  # the same share
        (None, 0, 1),
    ],
)
def test_epochs_are_the_recipes_or_the_share_that_minutes_left_of_the_usual(
    given: int | None, trained: int, expected: float | None
) -> None:
    recipe = Recipe().changed(finetune={"epochs": given, "batch": 32})
    task: Any = SimpleNamespace(together=1)
    parts = SimpleNamespace(train=[0] * EXAMPLES, task=task, shape=SimpleNamespace(layers=12))
    ours: Any = SimpleNamespace(run=SimpleNamespace(recipe=recipe), parts=parts)
    own: Any = SimpleNamespace(task=task, splits=SimpleNamespace(train=[0] * OWN))
    compared: Any = SimpleNamespace(recipe=recipe.changed(finetune={"epochs": trained}))
    assert _epochs(ours, own, compared) == (
        expected if expected is None else pytest.approx(expected, abs=1)
    )
