"""The benchmark of ways of selecting: its page, its chart and its intervals."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest
from scipy import stats


def run_of(
    dev: list[float], test: list[float] | None, flops: float = 1e15, passages: int = 10
) -> dict[str, Any]:
    def spread(values: list[float], interval: tuple[float, float] | None) -> dict[str, Any]:
        low, high = interval or (None, None)
        return {
            "mean": sum(values) / len(values),
            "sd": 0.0,
            "values": values,
            "low": low,
            "high": high,
        }

    selection = {
        "passages": passages,
        "tokens": 2000,
        "vocabulary": 300,
        "flops": 2e12,
        "seconds": 12.4,
    }
    about = {"date": "2026-01-01", "device": "GPU", "software": "torch 2", "workers": 4}
    scores = {"dev": spread(dev, None), "test": None if test is None else spread(test, (0.5, 0.7))}
    return {
        **scores,
        "selection": selection,
        "stage1": {"flops": flops, "seconds": 60.4},
        "about": about,
    }


def test_the_page_and_the_chart_say_what_must_be_known(module: Any) -> None:
    report = module("selection_runs.report")
    rows = {
        "random": {"1": run_of([0.5, 0.6], [0.6, 0.6])},
        "BM25": {"1": run_of([0.6, 0.7], None), "2": run_of([0.5, 0.5], None, 0.9e15)},
        "BM25 + influence": {"1": run_of([0.7, 0.8], None, passages=9), "2": {"failed": "killed"}},
    }
    about = {
        "vary": "method",
        "task": "A & B",
        "metric": "micro_f1",
        "settings": {"budget.flops": 1e15},
        "content": "c",
    }
    found = {
        **about,
        "candidates": 50,
        "kept": 10,
        "rows": {name: {"runs": runs} for name, runs in rows.items()},
    }
    page = report.markdown(found, "picture.svg")
    assert (
        "| random | 55.0 ± 7.1 | 60.0 ± 0.0 [50.0, "
        "70.0] | 10 | 2,000 | 300 | 2.0e12 | 1.0e15 | 12 | 60 |"
    ) in page
    assert (
        "| BM25 | 57.5 ± 10.6 | – | 10 |" in page
    )  # over 65 and 50, the means of the seeds of stage 1
    assert (
        "| BM25 + influence | **75.0 ± 7.1** |" in page
        and "![scores of the table below](picture.svg)" in page
    )
    assert (
        "- BM25, seed 2 of stage 1, spent 90.0 % of the FLOPs asked for." in page
        and "BM25, seed 1 of stage 1, spent" not in page
    )
    assert "- BM25 + influence, seed 2 of stage 1: no result (killed)." in page
    assert "- BM25 + influence, seed 1 of stage 1, had 9 passages, not 10." in page
    assert (
        "- Seeds of stage 1: 1 to 2; of fine-tuning, each: 2." in page
        and "up to 4 runs at once" in page
    )
    name = "{http://www.w3.org/2000/svg}"
    picture = ElementTree.fromstring(report.svg(found))
    hints = [hint.text for hint in picture.iter(f"{name}title")]
    assert hints == ["dev: 55.0 ± 7.1", "dev: 57.5 ± 10.6", "dev: 75.0 ± 7.1", "test: 60.0 ± 0.0"]
    heights = {
        hint: float(circle.get("cy", ""))
        for circle in picture.iter(f"{name}circle")
        for hint in [circle.findtext(f"{name}title")]
        if hint
    }
    assert (
        heights["dev: 75.0 ± 7.1"]
        < heights["test: 60.0 ± 0.0"]
        < heights["dev: 57.5 ± 10.6"]
        < heights["dev: 55.0 ± 7.1"]
    )
    assert "A & B" in "".join(picture.itertext()) and picture.find(f".//{name}polyline") is None
    later = {
        **found,
        "rows": {"BM25 + influence": {"runs": {"1": {"failed": "x"}, "2": run_of([0.9], None)}}},
    }
    joined = report.merged(found, later)["rows"]
    assert [run["dev"]["mean"] for run in joined["BM25 + influence"]["runs"].values()] == [
        0.75,
        0.9,
    ] and len(joined) == 3


def test_differences_have_the_interval_of_welch(module: Any) -> None:
    report = module("selection_runs.report")
    rows = {
        name: {"runs": {str(seed): run_of([score], None) for seed, score in enumerate(scores, 1)}}
        for name, scores in {
            "random": [0.5],
            "BM25": [0.70, 0.72, 0.71],
            "BM25 + influence": [0.74, 0.76],
        }.items()
    }
    parts = 0.0002 / 2, 0.0001 / 3  # variance of each mean
    error, freedom = sum(parts) ** 0.5, sum(parts) ** 2 / (parts[0] ** 2 / 1 + parts[1] ** 2 / 2)
    half = stats.t.ppf(0.975, freedom) * error
    found = report.difference(rows["BM25 + influence"], rows["BM25"], "dev")
    assert found == pytest.approx((0.04, 0.04 - half, 0.04 + half))
    assert (
        report.difference(rows["BM25"], rows["random"], "dev") is None
        and report.difference(rows["BM25"], rows["BM25"], "test") is None
    )
    about = {
        "vary": "method",
        "task": "t",
        "metric": "micro_f1",
        "settings": {"budget.flops": 1e15},
        "candidates": 50,
        "kept": 10,
    }
    page = report.markdown({**about, "rows": rows}, "picture.svg")
    assert (
        f"- **BM25 + influence** less **BM25**: "
        f"dev +4.0 [{4 - 100 * half:+.1f}, {4 + 100 * half:+.1f}]."
    ) in page
    assert "less **random**" not in page
