"""Linear models that go on from earlier weights end where a fit from scratch ends."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.svm import LinearSVC
from tests.updating.small import rows

from tasklm.recipe.data_sections import Kind
from tasklm.tasks.base import TASKS
from tasklm.tasks.baselines.linear import Trainer
from tasklm.tasks.baselines.margins import Machine, Products
from tasklm.tasks.baselines.refitting import Grown, refitted
from tasklm.tasks.examples import Example


def examples(labels: str, count: int, seed: int) -> list[Example]:
    return [Example((str(row["text"]),), row["label"]) for row in rows(labels, count, seed)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("strength", [0.01, 1.0, 30.0])
def test_newtons_method_ends_where_liblinear_ends(seed: int, strength: float) -> None:
    draw = np.random.default_rng(seed)
    # many rare columns, some that one example has, and few that most have and say nearly the same
    rare = draw.random((90, 200)) * (draw.random((90, 200)) > 0.97)
    usual = draw.random((90, 1)) + 0.1 * draw.random((90, 5))
    matrix = csr_matrix(np.hstack([rare, usual]))
    positive = (rare[:, :20].sum(1) + draw.normal(0, 0.3, 90)) > 0.4
    costs = strength * np.where(positive, 2.0, 0.5)
    shares = Machine.of(Products.of(matrix), positive, costs).fit(1e-6)
    machine = LinearSVC(
        C=strength, class_weight={True: 2.0, False: 0.5}, dual=False, tol=1e-9, max_iter=100_000
    )
    machine.fit(matrix, positive)
    assert np.allclose(matrix.T @ shares, machine.coef_[0], atol=1e-3)
    assert np.isclose(shares.sum(), machine.intercept_[0], atol=1e-3)


def test_a_refit_of_classes_decides_as_a_first_fit_does() -> None:
    old, new = examples("sport food", 60, 1), examples("sport food music", 60, 2)
    settings, train = Kind(), [*old, *new]
    before = TASKS.get("classify").from_examples(old, settings)
    after = TASKS.get("classify").from_examples(train, settings)
    wide = before.fit_wide(old, examples("sport food", 30, 3), "accuracy").wide
    fresh = np.arange(len(train)) >= len(old)
    again = refitted(wide, Grown(before, after, train, fresh))
    marks = wide.features.marks
    trainer = Trainer.of(train, marks, 3)
    targets = np.stack([[one.label == label for one in train] for label in after.labels], axis=1)
    scratch = trainer.fit(targets, wide.setting)  # as a first fit with this setting
    assert again is not None
    assert again.scale == wide.scale and again.width == 3
    test = examples("sport food music", 60, 4)
    assert np.abs(again.decisions(test) - trainer.decisions(scratch, test)).max() < 0.05


def test_a_model_has_only_the_blocks_of_its_view() -> None:
    old = examples("sport food", 60, 1)
    task = TASKS.get("classify").from_examples(old, Kind())
    wide = task.fit_wide(old, examples("sport food", 30, 3), "accuracy").wide
    filled = {name for name, block in wide.features.blocks.items() if block.tokens}
    assert filled == set(wide.setting.view)


def test_the_setting_is_kept_with_the_model(tmp_path) -> None:  # type: ignore[no-untyped-def]
    old = examples("sport food", 60, 1)
    task = TASKS.get("classify").from_examples(old, Kind())
    wide = task.fit_wide(old, examples("sport food", 30, 3), "accuracy").wide
    wide.save(tmp_path)
    assert wide.setting is not None
    assert type(wide).load(tmp_path).setting == wide.setting
