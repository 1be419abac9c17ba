"""One training of the benchmark of images, as a process: its error on test, and its cells."""

from __future__ import annotations

import json
import sys
import time
import types
from pathlib import Path
from typing import Any


def _without_numba() -> None:
    """Machines with a GPU may lack Numba, which nothing here calls."""
    try:
        import numba  # noqa: F401
    except ImportError:
        stub: Any = types.ModuleType("numba")

        def njit(*given: Any, **options: Any) -> Any:
            return given[0] if given and callable(given[0]) else lambda function: function

        stub.njit, stub.prange = njit, range
        sys.modules["numba"] = stub


def run(folder: Path, recipe_file: Path, overrides: dict[str, Any], cells: bool) -> dict[str, Any]:
    """Trains, and writes result.json beside the run."""
    _without_numba()
    from rich.console import Console

    from tasklm.images.data_set import read_images
    from tasklm.images.flow import fit
    from tasklm.images.probes import cell_report
    from tasklm.images.training import logits_of, model_of
    from tasklm.pipeline.inputs import Inputs
    from tasklm.recipe.toml import load
    from tasklm.run_folder import Seed
    from tasklm.tracking import Tracker

    tracker = Tracker(Console(stderr=True))
    recipe = load(recipe_file, overrides)
    begun = time.monotonic()
    fit(recipe, folder, tracker, until="finetune")
    from tasklm.images import flow

    opened = flow.open_run(recipe, folder, tracker)
    data = read_images(opened.recipe, opened.cache, Inputs(), tracker)
    course = flow.course_for(opened, data)
    assert data.test is not None
    seed = Seed(folder, 1, 1)
    model = model_of(course, seed.weights)
    right = logits_of(model, data.test, course.machine).argmax(1) == data.test.labels
    result: dict[str, Any] = {
        "error": 100.0 * (1.0 - float(right.mean())),
        "steps": seed.summary()["steps"],
        "seconds": seed.summary()["seconds"],
        "flops": seed.summary()["flops"],
        "whole_seconds": round(time.monotonic() - begun, 1),
        "device": str(course.machine.device),
    }
    if cells:
        report = cell_report(model, data.train, data.test, course.machine)
        result["activation"] = report.activation.tolist()
        result["accuracy"] = report.accuracy.tolist()
    (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")
    return result


if __name__ == "__main__":
    where, recipe_name, keys, wants_cells = sys.argv[1:]
    print(json.dumps(run(Path(where), Path(recipe_name), json.loads(keys), wants_cells == "1")))
