"""Which modules of cross-view training learn: those of finetune.views, of all tasks or of one."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

from tasklm.errors import RecipeError
from tasklm.tasks.base import Task
from tasklm.tasks.several import Several
from tasklm.tasks.tag import Tag
from tasklm.tokens.tokenizer import Vocabulary
from tests.students.samples import TASKS, batch_of, model_of, student_of
from tests.students.test_cross_view import losses_of

TAGGERS: dict[str, Task] = {"one": Tag(["a", "b", "c"], "plain"), "two": Tag(["x", "y"], "plain")}


def raw_of(task: Task, vocabulary: Vocabulary, seed: int = 1, **changes: Any) -> Any:
    model = model_of(task, vocabulary)
    student = student_of("cross-view", task, vocabulary, model, **changes).eval()
    batch = batch_of(TASKS["tag"], vocabulary)
    return student, model, student.prepare(batch, seed)


def test_only_the_named_views_have_losses(vocabulary: Vocabulary) -> None:
    student, model, raw = raw_of(TASKS["tag"], vocabulary, views=("full", "future"))
    assert list(losses_of(student, model, raw)) == ["full view", "future view"] == list(raw.masks)
    everything, _, _ = raw_of(TASKS["tag"], vocabulary)
    count = {
        name: sum(weight.numel() for weight in one.parameters())
        for name, one in (("some", student), ("all", everything))
    }
    assert count["some"] < count["all"]


def test_a_view_that_the_kind_lacks_is_refused(vocabulary: Vocabulary) -> None:
    model = model_of(TASKS["parse"], vocabulary)
    with pytest.raises(RecipeError, match=r"no view 'future'; its views are full, forward-forward"):
        student_of("cross-view", TASKS["parse"], vocabulary, model, views=("full", "future"))
    model = model_of(TASKS["classify"], vocabulary)
    with pytest.raises(RecipeError, match=r"no view 'past'; its views are full, first half"):
        student_of("cross-view", TASKS["classify"], vocabulary, model, views=("past",))


def test_views_are_those_of_every_task(vocabulary: Vocabulary) -> None:
    tasks = Several(TAGGERS, dict.fromkeys(TAGGERS, "accuracy"))
    _, _, raw = raw_of(tasks, vocabulary, views=("forward",))
    assert list(raw.masks) == ["one: forward view", "two: forward view"]


def test_one_task_learns_from_each_batch(vocabulary: Vocabulary) -> None:
    """The one that is drawn as it does among all; of the others nothing is asked."""
    tasks = Several(TAGGERS, dict.fromkeys(TAGGERS, "accuracy"))
    student, model, whole = raw_of(tasks, vocabulary)
    together = losses_of(student, model, whole)
    student, model, _ = raw_of(tasks, vocabulary, unlabelled_tasks="one")
    drawn: Counter[str] = Counter()
    for seed in range(2, 202, 2):  # as steps of raw text are numbered
        raw = student.prepare(whole.text, seed)
        learning = {name.split(":")[0] for name, count in raw.targets().items() if count}
        (task,) = learning
        drawn[task] += 1
        losses = losses_of(student, model, raw)
        for name, loss in losses.items():
            expected = together[name] if name.startswith(task) else torch.zeros(())
            torch.testing.assert_close(loss, expected)
    assert min(drawn["one"], drawn["two"]) > 30 and sum(drawn.values()) == 100
    again = student.prepare(whole.text, 2)
    assert again.targets() == student.prepare(whole.text, 2).targets()


def test_one_task_alone_takes_no_turns(vocabulary: Vocabulary) -> None:
    with pytest.raises(RecipeError, match="there is one task that learns from text"):
        raw_of(TASKS["tag"], vocabulary, unlabelled_tasks="one")
