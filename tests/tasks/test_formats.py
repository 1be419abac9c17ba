from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.tasks.format_samples import SPAN, jsonl, write

from tasklm.errors import DataError
from tasklm.recipe.data_sections import Data
from tasklm.tasks.readers.formats import recognise
from tasklm.tasks.span import Span

PAIR = {"text_a": "one", "text_b": "two"}
CASES: list[tuple[str, dict[str, str], list[dict[str, Any]]]] = [
    (
        "tag",
        {"text": "tokens", "label": "ner_tags"},
        [{"id": "1", "tokens": ["a", "b"], "ner_tags": ["O", "B-X"]}],
    ),
    ("tag", {"text": "words", "label": "labels"}, [{"words": ["a"], "labels": ["N"]}]),
    (
        "parse",
        {"text": "tokens", "label": "heads,deprels"},
        [{"tokens": ["a"], "heads": [0], "deprels": ["root"], "upos": ["X"]}],
    ),
    (
        "span",
        {"text": "question,context", "label": "answers"},
        [{**SPAN, "answers": {"text": ["Ann"], "answer_start": [0]}}],
    ),
    (
        "span",
        {"text": "question,context", "label": "answer"},
        [{**SPAN, "answer": "Ann"}, {**SPAN, "answer": ""}],
    ),
    (
        "classify",
        {"text": "question,passage", "label": "answer"},
        [{"question": "Is it?", "passage": "Yes.", "answer": True}],
    ),
    ("classify", {"text": "question,context", "label": "label"}, [{**SPAN, "label": "entailment"}]),
    (
        "choice",
        {"text": "article,question", "options": "options", "label": "answer"},
        [{"article": "a", "question": "q", "options": ["x", "y"], "answer": "B", "id": "1"}],
    ),
    (
        "choice",
        {"text": "ctx", "options": "endings", "label": "label"},
        [{"ctx": "a", "endings": ["x", "y"], "label": 1}],
    ),
    (
        "choice",
        {"text": "question", "options": "choices", "label": "answerKey"},
        [{"question": "q", "choices": {"text": ["x", "y"], "label": ["A", "B"]}, "answerKey": "A"}],
    ),
    (
        "classify",
        {"text": "text_a,text_b", "label": "label"},
        [{**PAIR, "label": 1}, {**PAIR, "label": 0}],
    ),
    (
        "regress",
        {"text": "text_a,text_b", "label": "label"},
        [{**PAIR, "label": 4.75}, {**PAIR, "label": 1.0}],
    ),
    (
        "classify",
        {"text": "text", "label": "label"},
        [{"text": "t", "label": 1.0}] * 99 + [{"text": "t", "label": 0.5}],
    ),
    (
        "regress",
        {"text": "text", "label": "label"},
        [{"text": "t", "label": 1.0}] * 97 + [{"text": "t", "label": 0.5}] * 3,
    ),
    (
        "multilabel",
        {"text": "text", "label": "labels"},
        [{"text": "t", "labels": ["a", "b"]}, {"text": "u", "labels": []}],
    ),
    ("classify", {"text": "Sentence", "label": "Label"}, [{"Sentence": "t", "Label": "x"}]),
    ("classify", {}, [{"what": "some words", "verdict": "pos"}]),
]


@pytest.mark.parametrize(
    ("kind", "columns", "rows"),
    CASES,
    ids=[f"{number}-{case[0]}" for number, case in enumerate(CASES)],
)
def test_tables_are_known_by_their_columns(
    tmp_path: Path, kind: str, columns: dict[str, str], rows: list[dict[str, Any]]
) -> None:
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    for path in (jsonl(tmp_path / "a.jsonl", rows), tmp_path / "a.parquet"):
        found = recognise(path)
        assert (found.kind, found.columns, found.splits) == (kind, columns, {})
        assert found.why


def test_texts_in_csv_are_read_as_numbers_where_all_are(tmp_path: Path) -> None:
    assert recognise(write(tmp_path / "a.csv", "text,label", "t,1.5", "u,2")).kind == "regress"
    assert recognise(write(tmp_path / "b.csv", "text,label", "t,1.5", "u,nan")).kind == "classify"
    assert recognise(write(tmp_path / "c.csv", "text,label", "t,1.5", "u,high")).kind == "classify"
    assert recognise(write(tmp_path / "d.csv", "text,label", "t,1.0", "u,2")).kind == "classify"


def test_files_are_known_by_their_layout(tmp_path: Path) -> None:
    squad = {
        "version": "1.1",
        "data": [{"title": "t", "paragraphs": [{"context": "c", "qas": []}]}],
    }
    race = {
        "article": "a",
        "questions": ["q"],
        "options": [["x", "y"]],
        "answers": ["A"],
        "id": "1",
    }
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(json.dumps(squad).encode()))
    write(tmp_path / "race.json", json.dumps(race))
    write(tmp_path / "race.txt", json.dumps(race))
    write(tmp_path / "a.conllu", "1\ta\ta\tX\t_\t_\t0\troot\t_\t_")
    write(tmp_path / "a.conll", "a N", "", "b V")
    write(
        tmp_path / "a.txt",
        "-DOCSTART- -X- O",
        "",
        "U.N. NNP B-ORG",
        "official NN O",
        "",
        "Ekeus NNP B-PER",
    )
    write(tmp_path / "b.tsv", "U.N.\tB-ORG", "official\tO", "", "Ekeus\tB-PER")
    kinds = {path.name: recognise(path).kind for path in sorted(tmp_path.iterdir())}
    assert kinds == {
        "a.json.gz": "span",
        "race.json": "choice",
        "race.txt": "choice",
        "a.conllu": "parse",
        "a.conll": "tag",
        "a.txt": "tag",
        "b.tsv": "tag",
    }


def test_what_is_not_known_is_told_with_its_name_and_a_remedy(tmp_path: Path) -> None:
    for path, problem in [
        (
            write(tmp_path / "a.txt", "some plain prose", "", "and more of it is here"),
            r"a\.txt, line 1: the kind of task cannot be detected",
        ),
        (tmp_path / "none", "there is no such file"),
        (
            write(tmp_path / "odd" / "a.bin", "x").parent,
            "odd: the kind of task cannot be detected from the folder's files",
        ),
        (
            write(tmp_path / "half" / "test.csv", "text,label", "a,b").parent,
            r"half: the folder has no training set, only test \(test\.csv\)",
        ),
        (
            write(tmp_path / "bad.jsonl", '{"text": "a", "label": 1}', '{"text"'),
            r"bad\.jsonl, line 2: the line is not valid JSON",
        ),
    ]:
        with pytest.raises(DataError, match=problem) as error:
            recognise(path)
        assert error.value.remedy


def test_texts_are_not_taken_for_labels(tmp_path: Path) -> None:
    rows = [
        {"text": f"One man number {i} sleeps.", "label": f"Ein Mann mit Nummer {i} schläft."}
        for i in range(30)
    ]
    with pytest.raises(
        DataError, match=r"a\.jsonl, line 1: column 'label' contains texts, not labels"
    ):
        recognise(jsonl(tmp_path / "a.jsonl", [{**row, "id": i} for i, row in enumerate(rows)]))
    assert recognise(
        jsonl(
            tmp_path / "b.jsonl",
            [{"text": row["text"], "label": rows[i % 3]["label"]} for i, row in enumerate(rows)],
        )
    )


def test_the_columns_that_are_found_can_be_given_to_the_reader(tmp_path: Path) -> None:
    path = jsonl(
        tmp_path / "a.jsonl", [{**SPAN, "answers": {"text": ["Ann"], "answer_start": [0]}}]
    )
    found = recognise(path)
    examples, _ = Span.read(
        path,
        Data(
            kind=found.kind, text_column=found.columns["text"], label_column=found.columns["label"]
        ),
    )
    assert examples[0].texts == ("Who?", "Ann lives.") and examples[0].label == [("Ann", 0)]
