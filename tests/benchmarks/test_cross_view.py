"""The benchmark of text without labels: its intervals by hand, its tables, and a small run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import ttest_1samp

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import cross_view
from cross_view_runs import runs
from cross_view_runs.tables import gain_table, interval, score_table
from tasklm.cli.options import overrides_of
from tasklm.errors import RunError
from tasklm.pipeline.flow import fit
from tasklm.recipe.toml import load
from tasklm.tracking import SILENT
from tests.conftest import sentences, write_jsonl
from tests.end_to_end.conftest import QUICK
from tests.end_to_end.test_several import tagged

TINY = {**QUICK, "train.steps": "4", "finetune.epochs": "1", "evaluate.bootstrap": "100"}
RESULTS = {
    "10": {
        "none": {"metric": "f1", "train": 1200, "dev": [60.0, 62.0, 64.0]},
        "vat": {"metric": "f1", "train": 1200, "dev": [61.0, 64.0, 67.0]},
    },
    "100": {"none": {"metric": "f1", "train": 12000, "dev": [80.0, 81.0, 82.0]}},
}


def test_intervals_are_student_s() -> None:
    values = [61.0, 64.0, 67.5, 60.0]
    mean, half = interval(values)
    expected = ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert (mean - half, mean + half) == pytest.approx((expected.low, expected.high))
    assert interval([3.0])[0] == 3.0 and np.isnan(interval([3.0])[1])


def test_tables_have_scores_and_gains_seed_by_seed() -> None:
    assert score_table(RESULTS, ["none", "vat"], "dev") == [
        "| labels | examples | none | vat |",
        "|---|---|---|---|",
        "| 10 % | 1,200 | 62.0 ± 5.0 | 64.0 ± 7.5 |",
        "| 100 % | 12,000 | 81.0 ± 2.5 |  |",
    ]
    assert gain_table(RESULTS, ["none", "vat"], "dev")[2:] == [
        "| 10 % | +2.0 ± 2.5 |",
        "| 100 % |  |",
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data" / "words").mkdir(parents=True)
    for split, count, seed in (("train", 40, 1), ("dev", 10, 2)):
        write_jsonl(tmp_path / "data" / "words" / f"{split}.jsonl", tagged(count, seed))
    texts = [[text.capitalize() for text in sentences(6, 100 + i)] for i in range(20)]
    write_jsonl(tmp_path / "corpus.jsonl", [{"text": " ".join(own)} for own in texts])
    return tmp_path


def main(folder: Path, monkeypatch: pytest.MonkeyPatch, *more: str) -> dict[str, Any]:
    extra = " ".join(f"--{key} {value}" for key, value in TINY.items() if key != "finetune.seeds")
    words = ["--work", str(folder / "work"), "--data", str(folder / "data"), "--seeds", "2"]
    words += ["--corpus", str(folder / "corpus.jsonl"), f"--extra={extra}", *more]
    monkeypatch.setattr(sys, "argv", ["cross_view.py", *words])
    cross_view.main()
    values: dict[str, Any] = json.loads((folder / "work" / "cross-view.json").read_text())
    return values


def test_a_small_run_and_one_that_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun: list[str] = []

    def run_here(cell: runs.Cell, student: str, settings: runs.Settings) -> None:
        """The command in this process."""
        begun.append(f"{cell.name} {student}")
        if len(begun) == 2:
            raise RunError("no memory")
        verb, task, *words = runs.command(cell, student, settings)
        given = overrides_of(words)
        out, corpus = Path(given.pop("out")), given.pop("corpus")
        assert verb == "fit"
        recipe = load(None, {**given, "data.train": task, "data.corpus": corpus})
        fit(recipe, out, SILENT)
        runs.keep_scores(cell, student, settings.work, out)

    monkeypatch.setattr(runs, "run_one", run_here)
    students = ("--students", "none,cross-view", "--shares", "50,100")
    first = main(folder, monkeypatch, *students)
    assert begun[:2] == ["words-50 none", "words-50 cross-view"]
    assert first["failed"] == ["words-50, cross-view: no memory"]
    stage1 = folder / "work" / "words-50" / "stage1" / "artefact.json"
    before = stage1.read_bytes()
    again = main(folder, monkeypatch, *students)
    assert begun[4:] == ["words-50 cross-view"] and not again["failed"]
    assert stage1.read_bytes() == before  # every student begins with the same
    results = again["tasks"]["words"]
    assert results["50"]["none"]["train"] in (20, 21) and results["100"]["none"]["train"] == 40
    assert all(len(run["dev"]) == 2 for one in results.values() for run in one.values())
    page = capsys.readouterr().out
    assert "## words, dev, accuracy" in page and "| labels | cross-view |" in page
    with pytest.raises(SystemExit, match="other settings"):
        main(folder, monkeypatch, "--seeds", "3")
    with pytest.raises(SystemExit):
        main(folder, monkeypatch, "--tasks", "nothing")
    with pytest.raises(SystemExit):
        main(folder, monkeypatch, "--shares", "0")


def test_no_run_begins_after_the_time_is_up(tmp_path: Path) -> None:
    settings = runs.Settings(tmp_path, tmp_path, "texts", None, 1, ())
    failed = runs.run_all([runs.Cell("a", 5.0)], ["none"], settings, 1, -1.0)
    assert failed == ["a-5, none: not begun: the time was up"]


def test_commands_have_the_share_and_the_student() -> None:
    settings = runs.Settings(Path("/w"), Path("/d"), "texts", Path("r.toml"), 3, ("--x.y", "1"))
    words = " ".join(runs.command(runs.Cell("chunks", 2.5), "vat", settings))
    assert words.startswith("fit /d/chunks --recipe r.toml --corpus texts --out /w/chunks-2.5 ")
    assert "--data.share 0.025 --finetune.seeds 3 --finetune.unlabelled vat --x.y 1" in words
