"""Questions and answers from SQuAD's JSON and from tables, with the faults of both."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasklm.errors import DataError
from tasklm.recipe.data_sections import Data
from tasklm.tasks.readers.squad import MISSING, answers_of, is_squad, place_of
from tasklm.tasks.span import Span


def squad(
    questions: list[dict[str, Any]],
    context: str = "Ann lives in Rome. Bob lives in Oslo, Ann says.",
) -> dict[str, Any]:
    return {
        "version": "v2.0",
        "data": [{"title": "T", "paragraphs": [{"context": context, "qas": questions}]}],
    }


QUESTIONS = [
    {
        "id": "1",
        "question": "Where does Ann live?",
        "answers": [{"text": "Rome", "answer_start": 13}],
        "is_impossible": False,
    },
    {
        "id": "2",
        "question": "Where does Eve live?",
        "answers": [],
        "plausible_answers": [{"text": "Rome"}],
        "is_impossible": True,
    },
    {
        "id": "3",
        "question": "Who says so?",
        "answers": [{"text": " Ann ", "answer_start": 36}, {"text": "Bob", "answer_start": 0}],
    },
    {"id": "4", "question": "Who is it?", "answers": [{"text": "Eve", "answer_start": 4}]},
]
LABELS = [[("Rome", 13)], [], [("Ann", 38)], [("Eve", MISSING)]]


def test_squad_files_plain_and_compressed(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.json", tmp_path / "b.json.gz"
    plain.write_text(json.dumps(squad(QUESTIONS), indent=1), encoding="utf-8")
    packed.write_bytes(gzip.compress(json.dumps(squad(QUESTIONS)).encode()))
    for path in (plain, packed):
        assert is_squad(path)
        examples, notes = Span.read(path, Data())
        assert [one.line for one in examples] == [1, 2, 3, 4] and examples[0].file == str(path)
        assert [one.label for one in examples] == [
            *LABELS[:2],
            [("Ann", 38), ("Bob", 19)],
            LABELS[3],
        ]
        assert examples[0].texts == (
            "Where does Ann live?",
            "Ann lives in Rome. Bob lives in Oslo, Ann says.",
        )
        assert any("4 questions, 1 of them without an answer" in note for note in notes)
        assert any(
            "2 answers were not at their offset" in note and "(lines 3)" in note for note in notes
        )
        assert [one.label for one in Span.read(path, Data(), labelled=False)[0]] == [None] * 4


def test_unlabelled_squad_files_need_no_answers(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(squad([{"id": "1", "question": "Where?"}])), encoding="utf-8")
    assert Span.read(path, Data(), labelled=False)[0][0].label is None
    with pytest.raises(
        DataError,
        match=r"a\.json, line 1: question 1 is not in SQuAD's layout \(KeyError: 'answers'\)",
    ):
        Span.read(path, Data())
    path.write_text('{"data": [\n{"paragraphs": [\n{]', encoding="utf-8")
    with pytest.raises(DataError, match=r"a\.json, line 3: not valid JSON"):
        Span.read(path, Data())


def test_tables_of_questions(tmp_path: Path) -> None:
    context = "Ann lives in Rome. Bob lives in Oslo, Ann says."
    cells: list[Any] = [
        {"text": ["Rome"], "answer_start": [13]},
        {"text": [], "answer_start": []},
        {"text": ["Ann"], "answer_start": [38]},
    ]
    rows = [
        {"id": str(i), "question": f"Q{i}?", "context": context, "answers": cell}
        for i, cell in enumerate(cells)
    ]
    (tmp_path / "a.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8"
    )
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text(
        f'query,passage,answer\nQ0?,"{context}",Rome\nQ1?,"{context}",\nQ2?,"{context}",Ann\n',
        encoding="utf-8",
    )
    for name in ("a.jsonl", "a.parquet", "a.csv"):
        examples, _ = Span.read(tmp_path / name, Data())
        assert [one.label for one in examples] == [
            [("Rome", 13)],
            [],
            [("Ann", 0 if name == "a.csv" else 38)],
        ]
        assert [one.texts[0] for one in examples] == ["Q0?", "Q1?", "Q2?"]
    examples, notes = Span.read(
        tmp_path / "a.csv", Data(text_column="query,passage", label_column="answer")
    )
    assert examples[2].line == 4 and "columns 'query' and 'passage', answers 'answer'" in notes[0]


def test_faulty_cells_name_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    for cell in (
        3,
        {"text": ["a", "b"], "answer_start": [1]},
        {"words": "a"},
        {"text": [1], "answer_start": [1]},
    ):
        path.write_text(
            '{"question": "q", "context": "a", "answers": "a"}\n'
            + json.dumps({"question": "q", "context": "a", "answers": cell})
        )
        with pytest.raises(
            DataError, match=r"a\.jsonl, line 2: column 'answers' does not contain answers"
        ) as error:
            Span.read(path, Data())
        assert "answer_start" in error.value.remedy
    path.write_text('{"question": "q", "context": " ", "answers": "a"}\n')
    with pytest.raises(DataError, match="the file has no questions"):
        Span.read(path, Data())


def test_places_and_cells() -> None:
    text = "ab ab ab"
    assert [place_of("ab", start, text) for start in (0, 3, 5, -1, 100)] == [0, 3, 6, 0, 6]
    assert place_of("zz", 0, text) == MISSING
    assert (
        place_of("aa", 2, "aaaa") == 2 and place_of("aa", 9, "aaaa") == 2
    )  # occurrences may overlap
    where: Any = ("answers", Path("f"), 1)
    assert answers_of([{"text": "a", "answer_start": 4}, "b"], *where) == [("a", 4), ("b", MISSING)]
    assert answers_of({"text": "a"}, *where) == [("a", MISSING)]
    assert answers_of(None, *where) == answers_of([], *where) == answers_of("", *where) == []
