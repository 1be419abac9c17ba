"""Rows that programs give, without files."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tasklm.errors import DataError
from tasklm.recipe.data_sections import Data, Kind
from tasklm.serve.inputs import example_from
from tasklm.tasks.base import TASKS, Task
from tests.conftest import write_jsonl
from tests.end_to_end.kind_data import CASES, Case

ROWS: dict[str, dict[str, Any]] = {
    "classify": {"text": "the cat – “sees” 日本 music", "other": 3},
    "multilabel": {"text": "a road"},
    "regress": {"sentence1": "one", "sentence2": "other"},
    "choice": {"article": "a cat", "question": "what ?", "options": ["music", "road", "cat"]},
    "tag": {"tokens": ["the", "cat", "."]},
    "span": {"question": "which number ?", "context": "it is number 5 ."},
    "parse": {"tokens": ["the", "cat", "sees"]},
    "translate": {"source": "the cat sees"},
}
opened: list[str] = []
watching = False


def _watch(event: str, details: tuple[Any, ...]) -> None:
    if watching and event in ("open", "os.mkdir", "tempfile.mkdtemp", "tempfile.mkstemp"):
        opened.append(f"{event} {details[0]}")


sys.addaudithook(_watch)


@contextmanager
def watched() -> Iterator[list[str]]:
    """Gives the list of files that the process opens meanwhile."""
    global watching
    opened.clear()
    watching = True
    try:
        yield opened
    finally:
        watching = False


def task_of(case: Case, folder: Path) -> Task:
    examples, _ = TASKS.get(case.kind).read(
        case.write(folder / f"train{case.suffix}", case.rows(24, 1)), Data()
    )
    return TASKS.get(case.kind).from_examples(examples, Kind())


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.kind))
def test_a_row_is_the_same_example_as_in_a_file_and_touches_no_disk(
    case: Case, tmp_path: Path
) -> None:
    row, task = ROWS[case.kind], task_of(case, tmp_path)
    (in_file,), _ = TASKS.get(case.kind).read(
        write_jsonl(tmp_path / "rows.jsonl", [row]), Data(), labelled=False
    )
    with watched() as files:
        found = example_from(row, task, Data())
        assert files == []
        (tmp_path / "rows.jsonl").read_bytes()
        assert files == [f"open {tmp_path / 'rows.jsonl'}"]  # the watch works
    assert found == replace(in_file, file="row") and found.label is None


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.kind))
def test_what_is_wrong_with_a_row_is_told_without_a_file(case: Case, tmp_path: Path) -> None:
    task = task_of(case, tmp_path)
    for row in (
        {},
        {"numbers": [1, 2]},
        {"text": {"a": 1}, "tokens": 5, "question": [], "context": None, "options": "no list"},
    ):
        with pytest.raises(DataError) as caught:
            example_from(row, task, Data())
        assert "row.jsonl" not in str(caught.value) and "/" not in str(caught.value)


def test_a_row_asks_one_question(tmp_path: Path) -> None:
    (case,) = (case for case in CASES if case.kind == "choice")
    task = task_of(case, tmp_path)
    asked = {"article": "a", "questions": ["b", "c"], "options": [["d", "e"], ["f", "g"]]}
    with pytest.raises(DataError, match="has 2 questions"):
        example_from(asked, task, Data())
    with pytest.raises(DataError, match="has 0 questions"):
        example_from({**asked, "questions": [], "options": []}, task, Data())
    one = example_from({**asked, "questions": ["b"], "options": [["d", "e"]]}, task, Data())
    assert one.texts == ("a", "b", "d", "e") and json.loads(json.dumps(one.options)) == ["d", "e"]
