"""The benchmark of baselines: a small run of it prints a row for each, with scores by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.conftest import write_jsonl

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCHMARKS / "baselines.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def rows(folder: Path, split: str, labels: str) -> None:
    texts = {"a": f"apples of {split}", "b": f"boats of {split}"}
    numbered = enumerate(labels)
    write_jsonl(
        folder / f"{split}.jsonl",
        [{"text": f"{texts[one]} {at}", "label": one} for at, one in numbered],
    )


def test_each_baseline_has_a_row_with_its_scores_and_the_time(tmp_path: Path) -> None:
    folder = tmp_path / "fruit"
    folder.mkdir()
    for split, labels in (("train", "aaabb" * 4), ("dev", "aab"), ("test", "abbb")):
        rows(folder, split, labels)
    result = run(f"{folder}:accuracy", f"{folder}:macro_f1:dev")
    assert result.returncode == 0, result.stderr
    lines = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in result.stdout.splitlines()
    ]
    assert lines[2] == ["fruit", "20 / 3 / 4", "accuracy", "majority", "66.7", "25.0", ""]
    assert lines[3][:-1] == ["fruit", "20 / 3 / 4", "accuracy", "TF-IDF + linear", "100.0", "100.0"]
    assert float(lines[3][-1]) >= 0
    assert lines[4] == ["fruit", "20 / 3 / 0", "macro_f1", "majority", "40.0", "–", ""]
    assert len(lines) == 6


def test_what_is_no_case_is_told_in_words(tmp_path: Path) -> None:
    assert "is not FOLDER:METRIC" in run("fruit").stderr
    empty = run(f"{tmp_path}:accuracy")
    assert empty.returncode == 1 and "there is no train.jsonl" in empty.stderr
