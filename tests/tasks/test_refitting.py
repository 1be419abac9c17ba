"""Linear models that go on from earlier weights end where a fit from scratch ends."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.svm import LinearSVC
from tests.updating.small import rows

from tasklm.recipe.data_sections import Kind
from tasklm.tasks.base import TASKS
from tasklm.tasks.baselines.margins import duals_of, refitted_machine
from tasklm.tasks.baselines.refitting import Grown, refitted
from tasklm.tasks.examples import Example


def examples(labels: str, count: int, seed: int) -> list[Example]:
    return [Example((str(row["text"]),), row["label"]) for row in rows(labels, count, seed)]


def test_the_descent_ends_where_liblinear_ends() -> None:
    draw = np.random.default_rng(0)
    matrix = csr_matrix(draw.random((80, 30)) * (draw.random((80, 30)) > 0.7))
    positive = draw.random(80) > 0.6
    costs = np.where(positive, 2.0, 0.5)
    weights, offset = refitted_machine(matrix, positive, costs, np.zeros(80), 1e-7)
    machine = LinearSVC(C=1.0, class_weight={True: 2.0, False: 0.5}, tol=1e-9, max_iter=100_000)
    machine.fit(matrix, positive)
    assert np.allclose(weights, machine.coef_[0], atol=1e-4)
    assert np.isclose(offset, machine.intercept_[0], atol=1e-4)
    decisions = matrix @ weights + offset
    start = duals_of(np.where(positive, decisions, -decisions), costs)
    again = refitted_machine(matrix, positive, costs, start, 1e-3)
    assert np.allclose(again[0], weights, atol=1e-3)  # an optimum stays


def test_a_refit_of_classes_decides_as_a_first_fit_does() -> None:
    old, new = examples("sport food", 60, 1), examples("sport food music", 60, 2)
    settings, train = Kind(), [*old, *new]
    before = TASKS.get("classify").from_examples(old, settings)
    after = TASKS.get("classify").from_examples(train, settings)
    wide = before.fit_wide(old, examples("sport food", 30, 3), "accuracy").wide
    fresh = np.arange(len(train)) >= len(old)
    again = refitted(wide, Grown(before, after, train, fresh))
    scratch = refitted(wide, Grown(before, after, train, np.ones(len(train), bool)))
    assert again is not None and scratch is not None
    assert again.scale == wide.scale and again.width == 3
    test = examples("sport food music", 60, 4)
    ours, other = again.decisions(test), scratch.decisions(test)
    assert np.abs(ours - other).max() < 0.1
    assert (ours.argmax(1) == other.argmax(1)).mean() > 0.95


def test_the_setting_is_kept_with_the_model(tmp_path) -> None:  # type: ignore[no-untyped-def]
    old = examples("sport food", 60, 1)
    task = TASKS.get("classify").from_examples(old, Kind())
    wide = task.fit_wide(old, examples("sport food", 30, 3), "accuracy").wide
    wide.save(tmp_path)
    assert wide.setting is not None
    assert type(wide).load(tmp_path).setting == wide.setting
