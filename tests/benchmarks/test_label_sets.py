"""The benchmark of coverage: each kind of task from files to the page, and nothing twice."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import labelled, sentences


def write(path: Path, rows: list[dict[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def tagged(count: int, seed: int) -> list[dict[str, object]]:
    """Sentences with a name of one of two sorts, or none."""
    rows: list[dict[str, object]] = []
    for text in sentences(count, seed):
        tokens = text.split()
        tags = ["B-thing" if "ball" in word else "O" for word in tokens]
        rows.append(
            {
                "tokens": tokens,
                "tags": [
                    "B-water" if word == "water" else tag
                    for word, tag in zip(tokens, tags, strict=True)
                ],
            }
        )
    return rows


def test_each_kind_is_measured_once_and_stands_on_the_page(
    module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    benchmark = module("label_sets")
    tasks, page = tmp_path / "tasks", tmp_path / "coverage.md"
    for split, count, seed in (("train", 120, 1), ("dev", 150, 2), ("test", 90, 3)):
        write(tasks / "glue_sst2" / f"{split}.jsonl.gz", labelled(count, seed))
        write(tasks / "wnut17_ner" / f"{split}.jsonl.gz", tagged(count, seed))
        if split != "test":  # half of dev is test
            write(tasks / "glue_rte" / f"{split}.jsonl.gz", labelled(count, seed))
    words = ["--tasks", str(tasks), "--work", str(tmp_path / "work"), "--page", str(page)]
    words += ["--only", "glue_sst2,wnut17_ner,glue_rte"]
    monkeypatch.setattr(module("label_set_runs.measures"), "DRAWS", 5)
    monkeypatch.setattr("sys.argv", ["label_sets.py", *words])
    benchmark.main()
    text = page.read_text(encoding="utf-8")
    assert (
        "| glue_sst2 | classify | 150 | 90 |" in text
        and "| glue_rte | classify | 75 | 75 |" in text
    )
    assert "| wnut17_ner | multilabel |" in text and "## Out-of-fold answers on train" in text
    results = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))
    assert all(one["measured"][0]["right"] <= one["measured"][0]["count"] for one in results)
    assert 0.85 < np.mean([one["redrawn"][0] for one in results]) <= 1
    monkeypatch.setattr(benchmark, "fit", lambda *given: pytest.fail("fitted again"))
    capsys.readouterr()
    benchmark.main()
    assert capsys.readouterr().out.strip() == text.strip()


def test_orders_add_up_what_is_likelier(module: Any) -> None:
    benchmark = module("label_set_runs.measures")
    odds = np.array([[0.5, 0.2, 0.3]])
    assert np.allclose(benchmark.added_up(odds, np.zeros(1)), [[0.5, 1.0, 0.8]])
    assert np.allclose(benchmark.added_up(odds, np.ones(1)), [[0.0, 0.8, 0.5]])
    assert np.allclose(benchmark.added_up(odds, np.zeros(1), 0.1), [[0.5, 1.2, 0.9]])
