"""The benchmark of images: its plan, its table and figure, and a small run of it."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasklm.recipe.toml import load
from tests.images.samples import arrays

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return lambda name: importlib.import_module(f"image_runs.{name}")


def test_every_method_is_a_recipe(module: Any) -> None:
    plan = module("plan")
    every = plan.planned(list(plan.METHODS), [1, 2], [False, True])
    assert len({one.name for one in every}) == len(every) == 24
    for one in every:
        recipe = load(ROOT / "recipes" / "cifar10.toml", one.overrides(Path("x.npz"), 5))
        assert (recipe.image.labelled, recipe.image.steps) == (one.subset, 5)
        assert bool(recipe.image.shifts) == one.shifts


def test_the_table_has_means_intervals_and_published_numbers(module: Any) -> None:
    plan, tables = module("plan"), module("tables")
    errors = (13.0, 14.0, 15.0)
    results = {
        plan.Wanted("vat", number, False): {"error": error, "steps": 50, "seconds": 60.0}
        for number, error in enumerate(errors, 1)
    }
    text = tables.table_text(results, [1, 2, 3])
    # 4.303 · 1 / √3
    row = "| VAT | 14.00 ± 1.00 [11.52, 16.48], 3 runs | 13.29 ± 0.33 | – | 10.90 ± 0.31 | 1.0 |"
    assert row in text and "CVT" not in text


def test_the_figure_compares_cells(module: Any) -> None:
    plan, tables = module("plan"), module("tables")
    low, high = np.full((6, 6), 0.4), np.full((6, 6), 0.5)
    high[[0, 0, -1, -1], [0, -1, 0, -1]] = 0.6
    results = {
        plan.Wanted(method, 1, False): {"activation": grid.tolist(), "accuracy": grid.tolist()}
        for method, grid in (("vat", low), ("cvt-vat", high))
    }
    assert "corners +50 %, centre +25 %" in tables.figure_text(results)
    assert "needs runs" in tables.figure_text({})


def test_a_small_run_prints_the_table(tmp_path: Path) -> None:
    images, labels = arrays(24)
    others, other_labels = arrays(9, 1)
    np.savez(
        tmp_path / "small.npz",
        train_images=images,
        train_labels=labels,
        test_images=others,
        test_labels=other_labels,
        labelled_6=np.array([[0, 1, 2, 3, 4, 5]]),
    )
    words = ["--data", str(tmp_path / "small.npz"), "--work", str(tmp_path / "work")]
    small = "--image.width 4 --finetune.batch 3 --hardware.threads 1 --hardware.device cpu"
    command = [sys.executable, str(BENCHMARKS / "images.py"), "--table", "4.6", *words]
    command += ["--subsets", "1", "--steps", "2", "--methods", "vat", f"--extra={small}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    logs = "".join(log.read_text() for log in (tmp_path / "work").glob("*.log"))
    assert done.returncode == 0, done.stdout + done.stderr + logs
    assert "| VAT | " in done.stdout and "(one run)" in done.stdout
    result = json.loads((tmp_path / "work" / "vat-1" / "result.json").read_text())
    assert 0 <= result["error"] <= 100 and result["steps"] == 2
    assert np.shape(result["accuracy"]) == (2, 2)
