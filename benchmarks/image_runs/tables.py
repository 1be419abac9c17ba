"""The table and the figure as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from image_runs.plan import METHODS, OF_FIGURE, PUBLISHED, Wanted

# 97.5 % points of Student's t for 1, 2, … degrees of freedom
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
Results = Mapping[Wanted, Mapping[str, Any]]


def table_text(results: Results, subsets: list[int]) -> str:
    """Table 4.6: error % of each method, with those that were published."""
    steps = sorted({int(one["steps"]) for one in results.values()})
    listed = ", ".join(f"{one:,}" for one in steps) or "no"
    lines = [
        f"Error % on test, mean ± sd [95 % interval of the mean] over the label sets "
        f"{', '.join(map(str, subsets))}; {listed} updates.",
        "",
        "| method | images as they are | thesis | with shifts | thesis | minutes a run |",
        "|---|---|---|---|---|---|",
    ]
    for method, (title, _, _) in METHODS.items():
        cells, seconds = [title], []
        for shifts in (False, True):
            own = [
                one for run, one in results.items() if (run.method, run.shifts) == (method, shifts)
            ]
            seconds += [float(one["seconds"]) for one in own]
            cells.append(spread_text([float(one["error"]) for one in own]))
            cells.append(PUBLISHED.get(method, ("–", "–"))[int(shifts)])
        if seconds:
            lines.append("| " + " | ".join([*cells, f"{np.mean(seconds) / 60:.1f}"]) + " |")
    return "\n".join(lines)


def spread_text(values: list[float]) -> str:
    """Mean, sd and interval of some errors."""
    if not values:
        return "–"
    mean = float(np.mean(values))
    if len(values) == 1:
        return f"{mean:.2f} (one run)"
    sd = float(np.std(values, ddof=1))
    wide = STUDENT[min(len(values), len(STUDENT) + 1) - 2] * sd / np.sqrt(len(values))
    return f"{mean:.2f} ± {sd:.2f} [{mean - wide:.2f}, {mean + wide:.2f}], {len(values)} runs"


def figure_text(results: Results) -> str:
    """Figure 4.7: activations and accuracies of the cells, means over all runs."""
    grids = {}
    for method in OF_FIGURE:
        own = [one for run, one in results.items() if run.method == method and "accuracy" in one]
        if not own:
            return f"Figure 4.7 needs runs of {' and '.join(OF_FIGURE)}; there is none of {method}."
        grids[method] = {
            name: np.mean([np.array(one[name]) for one in own], 0)
            for name in ("activation", "accuracy")
        }
    vat, cvt = (grids[method] for method in OF_FIGURE)
    ratio = cvt["activation"] / np.maximum(vat["activation"], 1e-12)
    corners, centre = _parts(cvt["accuracy"] / np.maximum(vat["accuracy"], 1e-12))
    lines = ["Activation of each cell, CVT + VAT over VAT:", _grid(ratio, "{:5.2f}")]
    lines += ["", "Accuracy × 100 of a softmax layer that reads one cell, VAT:"]
    lines.append(_grid(100 * vat["accuracy"], "{:5.1f}"))
    lines += ["", "The same, CVT + VAT:", _grid(100 * cvt["accuracy"], "{:5.1f}"), ""]
    lines.append(
        f"CVT + VAT over VAT: corners {100 * (corners - 1):+.0f} %, centre "
        f"{100 * (centre - 1):+.0f} % (the thesis: about +50 % and +25 %)"
    )
    return "\n".join(lines)


def _parts(grid: Any) -> tuple[float, float]:
    """The means of the corners and of the cells in the middle."""
    corners = float(np.mean(grid[[0, 0, -1, -1], [0, -1, 0, -1]]))
    low, high = (len(grid) - 1) // 2, len(grid) // 2 + 1
    return corners, float(np.mean(grid[low:high, low:high]))


def _grid(values: Any, form: str) -> str:
    return "\n".join(" ".join(form.format(value) for value in row) for row in values)
