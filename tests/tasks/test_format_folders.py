"""Folders that hold a task: texts by class, RACE, GLUE and datasets of Hugging Face."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.tasks.format_samples import CLASSES, SPAN, TEXT, dataset, write

from tasklm.errors import DataError
from tasklm.tasks.readers.folders import is_dataset, split_files, split_name, table_rows
from tasklm.tasks.readers.formats import recognise


def test_folders_of_texts_and_of_race(tmp_path: Path) -> None:
    for split in ("train", "test"):
        for label in ("pos", "neg"):
            write(tmp_path / "imdb" / split / label / "1.txt", "some text")
    found = recognise(tmp_path / "imdb")
    assert (found.kind, found.columns) == ("classify", {})
    assert found.splits == {
        "train": tmp_path / "imdb" / "train",
        "test": tmp_path / "imdb" / "test",
    }
    assert recognise(tmp_path / "imdb" / "train").splits == {}
    race = json.dumps(
        {"article": "a", "questions": ["q"], "options": [["x", "y"]], "answers": ["A"]}
    )
    for split in ("train", "dev", "test"):
        write(tmp_path / "RACE" / split / "middle" / "1.txt", race)
    found = recognise(tmp_path / "RACE")
    assert found.kind == "choice" and list(found.splits) == ["dev", "test", "train"]
    assert recognise(tmp_path / "RACE" / "train" / "middle").kind == "choice"


# GLUE's own files: header (None: CoLA has none), two rows, kind, columns
GLUE: dict[str, tuple[str | None, list[str], str, dict[str, str]]] = {
    "CoLA": (
        None,
        [('gj04\t1\t\tOur friends won\'t "buy" it.'), "gj04\t0\t*\tThe book."],
        "classify",
        {"text": "sentence", "label": "label"},
    ),
    "SST-2": (
        "sentence\tlabel",
        ["good film \t1", "bad \t0"],
        "classify",
        {"text": "sentence", "label": "label"},
    ),
    "MRPC": (
        ("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"),
        ['1\t7\t8\t"A" is .\tB', "0\t7\t8\tC\tD"],
        "classify",
        {"text": "#1 String,#2 String", "label": "Quality"},
    ),
    "STS-B": (
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore",
        [
            ("0\tg\tf\t2012\t1\tn\tn\tA plane\tAn air plane\t5.000"),
            ("1\tg\tf\t2012\t1\tn\tn\tA man\tA flute\t3.800"),
        ],
        "regress",
        {"text": "sentence1,sentence2", "label": "score"},
    ),
    "QQP": (
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
        ["1\t2\t3\tHow?\tWhy?\t0", "2\t4\t5\tWho?\tWho?\t1"],
        "classify",
        {"text": "question1,question2", "label": "is_duplicate"},
    ),
    "QNLI": (
        "index\tquestion\tsentence\tlabel",
        ["0\tWhen?\tIn May.\tentailment", "1\tWho?\tNo.\tnot_entailment"],
        "classify",
        {"text": "question,sentence", "label": "label"},
    ),
    "RTE": (
        "index\tsentence1\tsentence2\tlabel",
        ["0\ta\tb\tentailment", "1\tc\td\tnot_entailment"],
        "classify",
        {"text": "sentence1,sentence2", "label": "label"},
    ),
    "MNLI": (
        "index\tpromptID\tgenre\tsentence1_parse\tsentence1\tsentence2\tlabel1\tgold_label",
        ["0\t1\tg\t(a)\ta\tb\tneutral\tneutral", "1\t1\tg\t(a)\tc\td\tneutral\tcontradiction"],
        "classify",
        {"text": "sentence1,sentence2", "label": "gold_label"},
    ),
}


def unlabelled(name: str, header: str | None) -> str:
    """The header of GLUE's test file: an index, and no labels."""
    if header is None or name == "SST-2":
        return "index\tsentence"
    kept = [
        column
        for column in header.split("\t")
        if column not in ("Quality", "score", "label", "label1", "gold_label", "is_duplicate")
    ]
    return "\t".join(kept if kept[0] in ("index", "id") else ["index", *kept])


@pytest.mark.parametrize("name", GLUE)
def test_the_folders_of_glue(tmp_path: Path, name: str) -> None:
    header, rows, kind, columns = GLUE[name]
    top, head = tmp_path / name, [] if header is None else [header]
    write(top / "train.tsv", *head, *rows)
    for kept in ("dev_matched", "dev_mismatched") if name == "MNLI" else ("dev",):
        write(top / f"{kept}.tsv", *head, *rows)
    for kept in ("test_matched", "test_mismatched") if name == "MNLI" else ("test",):
        columns_of_test = unlabelled(name, header)
        write(
            top / f"{kept}.tsv",
            columns_of_test,
            "\t".join("x" for _ in columns_of_test.split("\t")),
        )
    found = recognise(top)
    assert (found.kind, found.columns) == (kind, columns)
    expected = {"train": "train.tsv", "dev": "dev.tsv", "unlabelled": "test.tsv"}
    if name == "MNLI":
        expected = {
            "train": "train.tsv",
            "dev": "dev_matched.tsv",
            "dev_mismatched": "dev_mismatched.tsv",
            "unlabelled": "test_matched.tsv",
            "unlabelled_mismatched": "test_mismatched.tsv",
        }
    assert {split: path.name for split, path in found.splits.items()} == expected
    wanted = [*columns["text"].split(","), columns["label"]]
    read = list(table_rows(top / "train.tsv", wanted))
    assert [row.line for row in read] == ([1, 2] if header is None else [2, 3])
    names = ["source", "label", "mark", "sentence"] if header is None else header.split("\t")
    for row, line in zip(read, rows, strict=True):
        assert row.values == {
            column: line.split("\t")[names.index(column)] for column in wanted
        }  # quotes are plain text


def test_broken_lines_of_glue_are_named_or_left_out(tmp_path: Path) -> None:
    header, rows, _, columns = GLUE["QQP"]
    assert header is not None
    path = write(tmp_path / "QQP" / "train.tsv", header, rows[0], "cut\tshort", rows[1])
    with pytest.raises(
        DataError, match=r"train\.tsv, line 3: the row has 2 fields, but the header has 6"
    ):
        list(table_rows(path))
    left_out: list[int] = []
    assert [row.line for row in table_rows(path, left_out=left_out)] == [2, 4] and left_out == [3]
    assert recognise(path).columns == columns
    with pytest.raises(DataError, match="there is no column 'question3'"):
        list(table_rows(path, ["question3"]))


def test_hugging_face_datasets_on_disk(tmp_path: Path) -> None:
    features = {
        "sentence1": TEXT,
        "sentence2": TEXT,
        "label": CLASSES,
        "idx": {"dtype": "int32", "_type": "Value"},
        "tags": {"feature": CLASSES, "_type": "Sequence"},
        "old": [CLASSES],
        "record": {"feature": {"kind": CLASSES, "text": TEXT}, "_type": "Sequence"},
        "inner": {"kind": CLASSES},
    }

    def row(number: int, label: int) -> dict[str, Any]:
        return {
            "sentence1": f"a{number}",
            "sentence2": "b",
            "label": label,
            "idx": number,
            "tags": [label, 1],
            "old": [0],
            "record": {"kind": [1, label], "text": ["x", "y"]},
            "inner": {"kind": label},
        }

    top = tmp_path / "set"
    dataset(
        top / "train", [row(0, 1), row(1, 0), row(2, 1), row(3, 0), row(4, 1)], features, files=2
    )
    dataset(top / "validation_matched", [row(0, 1)], features)
    dataset(top / "validation_mismatched", [row(0, 1)], features)
    dataset(top / "test", [row(0, -1), row(1, -1)], features)
    write(
        top / "dataset_dict.json",
        json.dumps({"splits": ["train", "validation_matched", "validation_mismatched", "test"]}),
    )
    found = recognise(top)
    assert (found.kind, found.columns) == (
        "classify",
        {"text": "sentence1,sentence2", "label": "label"},
    )
    assert {split: path.name for split, path in found.splits.items()} == {
        "train": "train",
        "dev": "validation_matched",
        "dev_mismatched": "validation_mismatched",
        "unlabelled": "test",
    }
    read = list(table_rows(top / "train"))
    assert [(one.line, one.values["sentence1"]) for one in read] == [
        (1, "a0"),
        (2, "a2"),
        (3, "a4"),
        (4, "a1"),
        (5, "a3"),
    ]
    assert read[0].values == {
        "sentence1": "a0",
        "sentence2": "b",
        "label": "yes",
        "idx": 0,
        "tags": ["yes", "yes"],
        "old": ["no"],
        "record": {"kind": ["yes", "yes"], "text": ["x", "y"]},
        "inner": {"kind": "yes"},
    }
    assert [one.values for one in table_rows(top / "test", ["label", "tags"])] == [
        {"label": None, "tags": [None, "yes"]}
    ] * 2
    alone = recognise(top / "train")
    assert (
        (alone.kind, alone.splits) == ("classify", {"train": top / "train"})
        and is_dataset(top / "train")
        and not is_dataset(top)
    )


def test_faults_of_datasets_name_the_file(tmp_path: Path) -> None:
    good = dataset(tmp_path / "a", [{"text": "t", "label": 1}], {"text": TEXT, "label": CLASSES})
    with pytest.raises(DataError, match=r"there is no column 'txt' \(did you mean 'text'\?\)"):
        list(table_rows(good, ["txt"]))
    (good / "data-00000-of-00001.arrow").write_bytes(b"damaged bytes, not a stream")
    with pytest.raises(DataError, match=r"data-00000-of-00001\.arrow: the file cannot be read"):
        list(table_rows(good))
    (good / "dataset_info.json").write_text("{", encoding="utf-8")
    with pytest.raises(DataError, match=r"dataset_info\.json: it cannot be read"):
        list(table_rows(good))
    with pytest.raises(DataError, match="the folder is not a dataset"):
        list(table_rows(tmp_path))


def test_splits_are_known_by_names(tmp_path: Path) -> None:
    expected = {
        "train.jsonl": "train",
        "train-v1.1.json.gz": "train",
        "dev-v2.0.json": "dev",
        "validation": "dev",
        "Val.csv": "dev",
        "valid": "dev",
        "test_mismatched.tsv": "test_mismatched",
        "training.csv": "train",
        "trainer.csv": "",
        "other.csv": "",
    }
    assert {name: split_name(name) for name in expected} == expected
    for name in ("train.csv", "dev.csv", "dev_nodup.csv", "notes.csv"):
        write(tmp_path / "a" / name, "text,label", "a,b")
    assert split_files(tmp_path / "a") == {
        "train": tmp_path / "a" / "train.csv",
        "dev": tmp_path / "a" / "dev.csv",
    }
    for part in (0, 1):
        write(tmp_path / "b" / f"train-0000{part}-of-00002.csv", "text,label", "a,b")
    with pytest.raises(
        DataError,
        match=(
            r"b: several files could be train: "
            r"train-00000-of-00002\.csv, train-00001-of-00002\.csv"
        ),
    ):
        split_files(tmp_path / "b")


def test_questions_in_a_dataset_on_disk(tmp_path: Path) -> None:
    answers = {
        "feature": {"text": TEXT, "answer_start": {"dtype": "int32", "_type": "Value"}},
        "_type": "Sequence",
    }
    rows = [
        {**SPAN, "answers": {"text": ["Ann"], "answer_start": [0]}},
        {**SPAN, "answers": {"text": [], "answer_start": []}},
    ]
    folder = dataset(
        tmp_path / "squad", rows, {"question": TEXT, "context": TEXT, "answers": answers}
    )
    found = recognise(folder)
    assert (found.kind, found.columns) == ("span", {"text": "question,context", "label": "answers"})
    assert [row.values for row in table_rows(folder)] == rows
