"""The benchmark of updates: its files and its table."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.updating.small import rows


def test_a_class_is_left_out_of_everything_and_comes_with_the_update(
    module: Any, tmp_path: Path
) -> None:
    update = module("update")
    for seed, split in enumerate(("train", "dev", "test")):
        own = rows("sport food music", 60, seed)
        with gzip.open(tmp_path / f"{split}.jsonl.gz", "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in own)
    files = update.files_of(tmp_path, "class", tmp_path / "work")
    labels = {
        name: {json.loads(line)["label"] for line in Path(path).read_text("utf-8").splitlines()}
        for name, path in files.items()
    }
    (left_out,) = labels["new-test"]
    for name in ("old", "dev", "test"):
        assert len(labels[name]) == 2 and left_out not in labels[name]
    assert left_out in labels["new"]


def test_the_table_counts_what_is_quick_and_what_is_close(module: Any) -> None:
    update = module("update")
    numbers = (100.0, 5.0, 90.0, 9.0, 60.0, 65.0, 65.2, (-0.2, -0.5, 0.1), (60.0, 61.0), None)
    one = update.Measured("a", "labels", "linear", "accuracy", 90, 10, 50, *numbers, 4, True)
    slow = replace(one, seconds=20.0, difference=(-0.9, -1.5, -0.1), fresh=(0.0, 50.0))
    page = update.page_of([one, slow])
    assert "Of 2 updates 1 took at most 10% of the first run's time, and 1 score" in page
    assert "| 5% | 10% | 60.0 | 65.0 | 65.2 | -0.2 [-0.5, +0.1] | – | – |" in page
