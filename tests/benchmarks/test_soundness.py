"""The matrix of ways to train: its cells cover all pairs, a slice of it is sound on a CPU, and what
is not is said.
"""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from soundness_runs import cells, report
from soundness_runs.cells import Cell, Outcome, covering, run_cell

SHORT = (64, 128)  # rows that a CPU reads in seconds


def values_of(cell: Cell) -> tuple[Any, ...]:
    return cell.encoder, cell.objective, cell.kind, cell.length, cell.precision


def slice_on_a_cpu() -> list[Cell]:
    """Cells that together hold every encoder, objective and kind of task."""
    before = cells.LENGTHS
    cells.LENGTHS = SHORT
    try:
        return covering(["fp32"], False, 1)
    finally:
        cells.LENGTHS = before


def test_cells_hold_every_pair_of_values() -> None:
    chosen = covering(["bf16", "fp32"], True, 2)
    factors = [sorted({values_of(cell)[place] for cell in chosen}) for place in range(5)]
    assert [len(values) for values in factors] == [3, 14, 7, 6, 2]
    for one, other in itertools.combinations(range(5), 2):
        pairs = {(values_of(cell)[one], values_of(cell)[other]) for cell in chosen}
        assert len(pairs) == len(factors[one]) * len(factors[other])


@pytest.mark.parametrize("cell", slice_on_a_cpu(), ids=str)
def test_a_slice_is_sound_on_a_cpu(cell: Cell, tmp_path: Path) -> None:
    outcome = run_cell(cell, tmp_path, "cpu")
    assert outcome.problems == ()


def test_steps_that_are_skipped_and_losses_that_are_off_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = Cell("bert", "stage 2", "classify", 64, "fp32", False)
    exact = cells._records

    def spoilt(*given: Any, **named: Any) -> Any:
        stage, records, skipped = exact(*given, **named)
        if given[2] == cells.STEPS:  # not the reference
            records[0].losses["task"] = torch.tensor(9.0)
        return stage, records, skipped + 2 * (given[2] == cells.STEPS)

    monkeypatch.setattr(cells, "_records", spoilt)
    outcome = run_cell(cell, tmp_path, "cpu")
    assert (
        "2 steps skipped" in outcome.problems[0]
        and "off those of fp32 on a CPU" in outcome.problems[-1]
    )
    page = report.markdown([outcome], [cell], "cpu")
    assert "0 are sound" in page and f"- {cell}: 2 steps skipped" in page


def test_outcomes_of_a_run_that_was_stopped_are_read_again() -> None:
    outcome = Outcome(
        Cell("bert", "mlm", "tag", 64, "bf16", True), ("2 steps skipped",), 3.5, 0.01, 2.0, 1.0
    )
    assert Outcome.from_dict(json.loads(json.dumps(outcome.to_dict()))) == outcome
