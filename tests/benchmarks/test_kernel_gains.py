"""What the benchmark of single GPU kernels measures, and the page that it writes."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import kernel_gains

PAGES = Path(__file__).resolve().parents[2] / "docs" / "benchmarks"


def test_the_vocabulary_is_the_one_that_training_has() -> None:
    cases = kernel_gains.cases_of("12x768:256x128,mini:8x64", 30_522)
    assert [case.name for case in cases] == ["12x768:256x128", "mini:8x64"]
    assert [case.shape.vocabulary for case in cases] == [30_528, 30_528]


def test_the_page_is_the_one_that_is_written_from_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = json.loads((PAGES / "kernel-gains.json").read_text(encoding="utf-8"))
    page = (PAGES / "kernel-gains.md").read_text(encoding="utf-8")
    places = re.search(r"on (.+), torch (\S+)\.\n", page)
    assert places is not None
    monkeypatch.setattr(torch, "__version__", places[2])
    measured = [kernel_gains.Row(**row) for row in rows]
    assert {row.kernel for row in measured} == set(kernel_gains.SITES)
    assert kernel_gains.markdown(measured, places[1]) == page
