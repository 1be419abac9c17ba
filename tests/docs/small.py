"""The pipeline with every training kept as small as can be."""

from __future__ import annotations

from typing import Any

import pytest

import tasklm.api.verbs
import tasklm.comparing.processes
import tasklm.images.flow
import tasklm.pipeline.flow
from tasklm.evaluate.scores import Scores
from tasklm.recipe.schema import Recipe
from tests.comparing.here import in_this_process

run_in_full = tasklm.pipeline.flow.fit
learn_images_in_full = tasklm.images.flow.fit


def small_of(recipe: Recipe) -> Recipe:
    """The recipe of a page with small numbers in it, seconds in place of its minutes; what it asks
    for otherwise stays.
    """
    started = recipe.train.start is not None  # the other weights have their sizes
    sizes = {
        "size": "tiny",
        "layers": 1,
        "width": 32,
        "heads": 2,
        "feedforward": None,
        "embedding": recipe.model.embedding and 16,
    }
    if recipe.model.encoder == "bilstm":  # it has two layers, and no heads
        sizes |= {"layers": None, "heads": None}
    changes: dict[str, dict[str, Any]] = {
        "model": {} if started else sizes,
        "tokens": {"length": 32, "vocabulary": None if started else 400},
        "select": {
            "k": _at_most(5, recipe.select.k),
            "passages": _at_most(40, recipe.select.passages),
            "influence_steps": 4,
        },
        "train": {
            "steps": _at_most(6, recipe.train.steps),
            "batch": 8,
            "checkpoint_seconds": 1000.0,
        },
        "finetune": {
            "epochs": 1,
            "seeds": 2 if recipe.evaluate.ensemble else 1,
            "batch": 32,
            "wide": False,
        },
        "evaluate": {"bootstrap": 100},
        "budget": {"minutes": None, "flops": None},
        "hardware": {"device": "cpu", "precision": "fp32", "threads": 1, "compile": "off"},
    }
    return recipe.changed(**changes)


def _at_most(limit: int, asked: int | None) -> int:
    return limit if asked is None else min(limit, asked)


def small_run(recipe: Recipe, *others: Any, **named: Any) -> Scores | None:
    """Runs the real pipeline on the recipe with small numbers in it."""
    return run_in_full(small_of(recipe), *others, **named)


def small_image_run(recipe: Recipe, *others: Any, **named: Any) -> Scores | None:
    """Runs the real flow of images on the recipe with small numbers in it."""
    changes: dict[str, dict[str, Any]] = {
        "image": {"width": 4, "steps": 3, "unlabelled_batch": None},
        "finetune": {"seeds": 1, "batch": 6},
        "evaluate": {"bootstrap": 100},
        "budget": {"minutes": None},
        "hardware": {"device": "cpu", "precision": "fp32", "threads": 1, "compile": "off"},
    }
    return learn_images_in_full(recipe.changed(**changes), *others, **named)


def keep_small(patch: pytest.MonkeyPatch) -> None:
    """Makes every training small, by the command line and in Python, and leaves out measuring the
    machine, which takes longer.
    """
    patch.setattr("tasklm.pipeline.flow.fit", small_run)
    patch.setattr("tasklm.images.flow.fit", small_image_run)
    patch.setattr(tasklm.comparing.processes, "in_a_process", in_this_process)
    patch.setattr(tasklm.api.verbs, "run_pipeline", small_run)
    patch.setattr("tasklm.train.stage_runs.matmul_ceiling", lambda machine: 1e10)
