"""A budget for an objective whose halves cost differently."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tasklm.pipeline.flow import fit
from tasklm.recipe.toml import load
from tasklm.tracking import SILENT
from tests.end_to_end.conftest import options


def test_a_budget_of_flops_is_spent_over_both_halves(files: Path, tmp_path: Path) -> None:
    chosen = options(
        files,
        budget__flops="3e9",
        train__objective="electra-two-stage",
        train__rho1="4",
        finetune__epochs="1",
    )
    fit(
        load(None, {key: value for key, value in chosen.items() if key != "train.steps"}),
        tmp_path / "run",
        SILENT,
        until="train",
    )
    spent = json.loads((tmp_path / "run" / "stage1" / "summary.json").read_text())
    assert (
        spent["flops"] == pytest.approx(3e9, rel=0.05)
        and spent["switched"] == (spent["steps"] + 1) // 2 > 5
    )
