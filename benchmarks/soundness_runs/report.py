"""The page of soundness.py."""

from __future__ import annotations

from collections.abc import Sequence

from soundness_runs.cells import MARGIN, SIGNED, STEPS, TOLERANCE, Cell, Outcome

FACTORS = ("encoder", "objective", "kind", "length", "precision", "compiled")


def markdown(outcomes: Sequence[Outcome], cells: Sequence[Cell], device: str) -> str:
    """What was run, what was wrong, and by each value of each factor how many cells were sound."""
    wrong = [outcome for outcome in outcomes if outcome.problems]
    limits = ", ".join(f"{precision} {limit:.0%}" for precision, limit in TOLERANCE.items())
    lines = [
        "# Soundness of every way to train",
        "",
        (
            f"Made by `benchmarks/soundness.py` on {device}: "
            f"{len(outcomes)} of {len(cells)} cells were trained for {STEPS} steps each;"
        ),
        (
            f"{len(outcomes) - len(wrong)} are sound: no step skipped, "
            f"nothing compiled anew, a falling loss, and first losses as in"
        ),
        f"fp32 on a CPU ({limits}; {MARGIN} times that for {', '.join(SIGNED)}, whose loss has both",
        "signs and is often near 0).",
        "",
        "| factor | value | cells | sound | first losses off, at most |",
        "|---|---|---|---|---|",
    ]
    for factor in FACTORS:
        for value in dict.fromkeys(getattr(cell, factor) for cell in cells):
            these = [outcome for outcome in outcomes if getattr(outcome.cell, factor) == value]
            sound = [outcome for outcome in these if not outcome.problems]
            apart = max((outcome.apart for outcome in sound), default=0.0)
            lines.append(f"| {factor} | {value} | {len(these)} | {len(sound)} | {apart:.2%} |")
    if wrong:
        lines += ["", "Not sound:", ""]
        lines += [f"- {outcome.cell}: {'; '.join(outcome.problems)}" for outcome in wrong]
    return "\n".join(lines) + "\n"
