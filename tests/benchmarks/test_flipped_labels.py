"""The benchmark of labels flipped at random: a small run of it, where labels follow from words and
where they follow from nothing.
"""

from __future__ import annotations

import importlib
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import labelled, write_jsonl

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("flipped_labels")


def rows_of(printed: str) -> list[list[str]]:
    """The cells of each row below the head of the table."""
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in printed.splitlines()[2:]
    ]


def test_flipped_labels_are_found_where_words_decide(
    program: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    draw = random.Random(1)
    for name in ("words", "nothing"):
        (tmp_path / name).mkdir()
        found = labelled(400, 3)
        if name == "nothing":
            found = [{**row, "label": draw.choice(["yes", "no"])} for row in found]
        write_jsonl(tmp_path / name / "train.jsonl", found)
    files = [str(tmp_path / name / "train.jsonl") for name in ("words", "nothing")]
    monkeypatch.setattr(sys, "argv", ["flipped_labels.py", *files, "--most", "240", "--draws", "2"])
    program.main()
    rows = rows_of(capsys.readouterr().out)
    assert [row[:4] for row in rows] == [
        [name, "240", "2", draw] for name in ("words", "nothing") for draw in ("1", "2")
    ]
    found = [int(row[4].rstrip("%")) for row in rows]
    assert (
        min(found[:2]) >= 90 and max(found[2:]) <= 50
    )  # of 12 flipped ones; by chance a tenth is listed first
    assert all(0 <= int(row[5].rstrip("%")) <= 100 for row in rows)


def test_as_many_labels_are_flipped_as_is_said_and_the_file_stays(
    program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []

    def held_out(features: Any, targets: Any, classes: int) -> Any:
        seen.append([str(number) for number in targets])
        raise KeyboardInterrupt

    monkeypatch.setattr(program, "held_out", held_out)
    rows = program.read_splits(
        program.Data(train=str(write_jsonl(tmp_path / "train.jsonl", labelled(200, 3))))
    ).train
    before = [row.label for row in rows]
    for draw in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            program._row(tmp_path / "train.jsonl", list(rows), draw)
    plain = [str(["no", "yes"].index(str(label))) for label in before]
    changed = [
        {i for i, (old, new) in enumerate(zip(plain, found, strict=True)) if old != new}
        for found in seen
    ]
    assert [len(one) for one in changed] == [round(0.05 * len(rows))] * 2 and changed[0] != changed[
        1
    ]
    assert [row.label for row in rows] == before
