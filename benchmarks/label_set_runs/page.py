"""The page of results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import betabinom

from label_set_runs.data import LABELS
from label_set_runs.measures import ORDERS, PROMISED
from tasklm.coverage.measured import Measured
from tasklm.coverage.quantiles import alpha_of, rank


def share(value: float) -> str:
    """A share in percent."""
    return f"{100 * value:.1f}"


def chance(one: Measured) -> float:
    """How likely the measured coverage is within a point of the promise if that holds exactly."""
    place = rank(one.dev, alpha_of(one.promised))
    if place > one.dev:
        return 0.0
    low, high = (one.count * (one.promised + away) for away in (-0.01, 0.01))
    law = betabinom(one.count, place, one.dev + 1 - place)
    return float(law.cdf(math.floor(high + 1e-9)) - law.cdf(math.ceil(low - 1e-9) - 1))


def within(one: Measured) -> tuple[bool, bool]:
    """Whether the coverage is within a point of the promise, and where it should lie."""
    low, high = one.expected
    return abs(one.coverage - one.promised) <= 0.01 + 1e-9, low <= one.coverage <= high


def page_of(results: Sequence[dict[str, Any]], command: str) -> str:
    """The page of results."""
    lines = ["# Coverage, measured", "", about(command), ""]
    for place, promised in enumerate(PROMISED):
        rows = [(one, Measured.from_dict(one["measured"][place])) for one in results]
        near = [within(row)[0] for _, row in rows]
        fits = [within(row)[1] for _, row in rows]
        drawn = [abs(one["redrawn"][place] - promised) <= 0.01 + 1e-9 for one, _ in rows]
        likely = sum(chance(row) for _, row in rows)
        lines += [
            f"## Promised {promised:.0%}",
            "",
            f"Within ±1 point: **{sum(near)} of {len(rows)}**; {likely:.1f} are expected where every promise holds exactly. "
            f"Dev and test drawn apart again: **{sum(drawn)} of {len(rows)}**. Where it should lie in 95 of 100 cases: "
            f"**{sum(fits)} of {len(rows)}**. Mean measured coverage: "
            f"{share(float(np.mean([row.coverage for _, row in rows])))} %.",
            "",
            "| task | kind | dev | test | measured, % | should lie in | ±1 | in | drawn again, % | mean size | single, % | unknown, % | worst class, % |",
            "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
        ]
        lines += [row_of(one, row, one["redrawn"][place]) for one, row in rows]
        lines.append("")
    return "\n".join([*lines, *choices(results)])


def about(command: str) -> str:
    return (
        f"`{command}`: the linear model of words, fitted to at most {LABELS:,} examples, calibrated on dev; "
        "how often its sets have the right answer on test. "
        "*Should lie in*: the interval that 95 of 100 such measurements fall in if the promise holds, given the sizes of dev and "
        "test (beta-binomial). *Drawn again*: the mean over 50 random ways to share out dev and test, which are alike then. "
        "An unknown text counts as a miss. *Worst class*: the lowest coverage of a class with 20 or more test examples."
    )


def row_of(result: dict[str, Any], row: Measured, redrawn: float) -> str:
    near, fits = within(row)
    worst = [right / count for right, count in row.by_class.values() if count >= 20]
    single, size = share(row.single / row.count), f"{row.size:.2f}"
    if result["kind"] == "regress":
        single, size = "–", f"{row.size:.2f} wide"
    elif result["labels"]:
        size += f" of {result['labels']}"
    cells = [
        *(result["task"], result["kind"], f"{row.dev:,}", f"{row.count:,}", share(row.coverage)),
        f"{share(row.expected[0])}–{share(row.expected[1])}",
        *("yes" if near else "no", "yes" if fits else "**no**", share(redrawn), size, single),
        share((row.unlike + row.empty) / row.count),
        share(min(worst)) if worst else "–",
    ]
    return f"| {' | '.join(cells)} |"


def choices(results: Sequence[dict[str, Any]]) -> list[str]:
    """What was compared on dev."""
    lines = [
        "## Which order of classes",
        "",
        "Mean size of sets on one half of dev, thresholds from the other; the smallest is best.",
        "",
    ]
    lines += [f"| task | promised | {' | '.join(ORDERS)} |", "|---|---|" + "---|" * len(ORDERS)]
    for one in results:
        for place, promised in enumerate(PROMISED):
            if one["orders"]:
                sizes = " | ".join(f"{one['orders'][name][place]:.2f}" for name in ORDERS)
                lines.append(f"| {one['task']} | {promised:.0%} | {sizes} |")
    lines += [
        "",
        "## Thresholds by class",
        "",
        "On halves of dev: mean size of sets, and the lowest coverage of a class with 20 or more examples there.",
        "",
        "| task | promised | one for all: size | lowest class, % | by class: size | lowest class, % |",
        "|---|---|---|---|---|---|",
    ]
    for one in results:
        for promised, own in zip(PROMISED, one["by_class"], strict=False):
            cells = [f"{size:.2f} | {share(lowest)}" for size, lowest in own.values()]
            lines.append(f"| {one['task']} | {promised:.0%} | {' | '.join(cells)} |")
    lines += [
        "",
        "## Out-of-fold answers on train",
        "",
        "Coverage on dev of thresholds from out-of-fold answers on train, which are more; in brackets where it should lie.",
        "",
    ]
    lines += ["| task | 90 % | 95 % |", "|---|---|---|"]
    outside = 0
    for one in results:
        cells = []
        for own in one["folds"]:
            bad = not own["low"] <= own["coverage"] <= own["high"]
            outside += bad
            cells.append(
                f"{share(own['coverage'])} ({share(own['low'])}–{share(own['high'])}){' **out**' if bad else ''}"
            )
        lines.append(f"| {one['task']} | {' | '.join(cells)} |")
    lines += [
        "",
        f"{outside} of {2 * len(results)} lie outside, where 5 % are expected to: not used.",
    ]
    lines += [
        "",
        "## Strange texts",
        "",
        "Share of texts taken for strange where 1 % of dev is: of the own test, and of 60 texts of each other task.",
        "",
    ]
    lines += [
        "| task | new words: own test | other tasks | unlikely letters: own test | other tasks |",
        "|---|---|---|---|---|",
    ]
    for one in results:
        if one["strange"]:
            cells = [f"{share(value)} %" for own in one["strange"].values() for value in own]
            lines.append(f"| {one['task']} | {' | '.join(cells)} |")
    return [*lines, ""]
