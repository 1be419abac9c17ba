"""Smoothed labels in stage 2."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from tasklm.errors import RecipeError
from tasklm.pipeline.flow import fit
from tasklm.recipe.data_sections import Kind
from tasklm.recipe.model_sections import Finetune
from tasklm.recipe.parsing import values_for_key
from tasklm.recipe.toml import load
from tasklm.tasks.base import NONE, TASKS
from tasklm.tasks.classify import Classify
from tasklm.tasks.examples import Example
from tasklm.tasks.tag import Tag
from tasklm.tracking import Tracker
from tasklm.train.stage2 import TaskLosses
from tasklm.train.stages import finetune_stage
from tests.end_to_end.kind_data import CASES
from tests.end_to_end.test_kinds import SPLITS, settings_of
from tests.train.test_loop import parts  # noqa: F401  (a fixture)

EXAMPLES = [Example(("a",), label) for label in ("x", "y", "z")]
CLASSES = Classify.from_examples(EXAMPLES, Kind())
TAGS = Tag(["B-X", "I-X", "O"], "BIO")


@pytest.mark.parametrize("task", [CLASSES, TAGS], ids=["classify", "tag"])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.7])
def test_the_loss_is_torchs(task: Classify | Tag, share: float) -> None:
    torch.manual_seed(0)
    outputs = torch.randn(4, 5, 3, requires_grad=True)
    targets = torch.randint(0, 3, (4, 5))
    targets[0, 2:], targets[3] = NONE, NONE
    losses = TaskLosses(None, task, False, False, share)  # type: ignore[arg-type]
    ours = losses._label_loss(task, outputs, targets)
    theirs = functional.cross_entropy(
        outputs.flatten(0, 1),
        targets.flatten(),
        ignore_index=NONE,
        label_smoothing=share,
        reduction="sum",
    )
    torch.testing.assert_close(ours, theirs)
    of_ours, of_theirs = (torch.autograd.grad(loss, outputs)[0] for loss in (ours, theirs))
    torch.testing.assert_close(of_ours, of_theirs)


def test_stage_2_smooths(parts) -> None:  # type: ignore[no-untyped-def]
    stage = finetune_stage(parts, Finetune(label_smoothing=0.2), 1, "accuracy", None)
    assert stage.losses.smoothing == 0.2
    other = dataclasses.replace(stage.losses, smoothing=0.0)
    assert not stage.losses.fits(other)


def test_the_default_changes_no_key() -> None:
    assert "label_smoothing" not in values_for_key(Finetune())
    assert values_for_key(Finetune(label_smoothing=0.1))["label_smoothing"] == 0.1


def test_every_kind_says_whether_it_can() -> None:
    assert not CLASSES.unsmoothed and not TAGS.unsmoothed
    assert "CRF" in Tag(["B-X", "O"], "BIO", crf=True).unsmoothed
    kinds = {name: TASKS.get(name) for name in TASKS.names()}
    refused = ("choice", "multilabel", "parse", "regress", "span")
    assert all(kinds[name].unsmoothed for name in refused)


def test_other_kinds_are_refused_before_any_work(tmp_path: Path) -> None:
    case = next(case for case in CASES if case.kind == "parse")
    for name, count, seed in SPLITS:
        case.write(tmp_path / f"{name}{case.suffix}", case.rows(count, seed))
    settings = {**settings_of(case, tmp_path), "finetune.label_smoothing": "0.1"}
    settings.pop("data.corpus")
    with pytest.raises(RecipeError, match="places in a text"):
        fit(load(None, settings), tmp_path / "run", Tracker())
