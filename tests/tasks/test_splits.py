from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.conftest import write_jsonl

from tasklm.corpus.dedupe import text_key
from tasklm.errors import DataError
from tasklm.recipe.data_sections import Data
from tasklm.tasks.classify import Classify
from tasklm.tasks.readers.splits import read_splits, resolved


def jsonl(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def many(count: int, labels: str = "ab", word: str = "text") -> list[dict[str, Any]]:
    return [
        {"text": f"{word} number {i} is here", "label": labels[i % len(labels)]}
        for i in range(count)
    ]


def problem(data: Data | Path, **columns: str) -> DataError:
    with pytest.raises(DataError) as caught:
        if isinstance(data, Data):
            read_splits(data)
        else:
            Classify.read(data, Data(**columns))
    assert caught.value.remedy
    return caught.value


def test_known_names_are_found_in_every_format(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "id,Label,Sentence\n1,x,hello there\n2,y,good bye\n", encoding="utf-8"
    )
    (tmp_path / "a.tsv").write_text(
        "Sentence\tLabel\nhello there\tx\ngood bye\ty\n", encoding="utf-8"
    )
    rows = [{"Sentence": "hello there", "Label": "x"}, {"Sentence": "good bye", "Label": "y"}]
    (tmp_path / "a.jsonl.gz").write_bytes(
        gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode())
    )
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    for name in ("a.csv", "a.tsv", "a.jsonl.gz", "a.parquet"):
        examples, notes = Classify.read(tmp_path / name, Data())
        assert notes == ["text column 'Sentence', label column 'Label'"]
        assert [(example.text, example.label) for example in examples] == [
            ("hello there", "x"),
            ("good bye", "y"),
        ]
        assert examples[1].line == (3 if name in ("a.csv", "a.tsv") else 2)
        assert examples[0].file == str(tmp_path / name)


def test_other_columns_are_found_by_shape_or_named(tmp_path: Path) -> None:
    rows = [
        {
            "id": f"n{i}",
            "what": f"a rather long statement about the thing {i}",
            "verdict": "pos" if i % 3 else "neg",
        }
        for i in range(30)
    ]
    path = tmp_path / "a.jsonl"
    jsonl(path, rows)
    assert Classify.read(path, Data())[1] == ["text column 'what', label column 'verdict'"]
    assert Classify.read(path, Data(text_column="verdict", label_column="id"))[1] == [
        "text column 'verdict', label column 'id'"
    ]
    error = problem(path, label_column="verdct")
    assert (
        "there is no column 'verdct' (did you mean "
        "'verdict'?); the columns are 'id', 'what', 'verdict'"
    ) in str(error)
    assert "--label-column" in error.remedy


def test_ambiguous_columns_are_not_guessed(tmp_path: Path) -> None:
    pairs = [
        {"one": f"one statement number {i}", "two": f"two statement number {i}", "label": i % 2}
        for i in range(20)
    ]
    path = tmp_path / "a.jsonl"
    jsonl(path, pairs)
    error = problem(path)
    assert "a.jsonl, line 1: it is unclear which column contains the text, 'two' or 'one'" in str(
        error
    )
    assert "'one', 'two', 'label'" in error.problem
    assert "--text-column" in error.remedy
    assert "data.text_column" in error.remedy
    jsonl(
        path, [{"text": f"some text {i}", "year": 2000 + i % 3, "month": i % 12} for i in range(60)]
    )
    error = problem(path)
    assert "it is unclear which column contains the label, 'year' or 'month'" in error.problem
    assert "--label-column" in error.remedy


def test_no_labels(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text\n" + "".join(f"text {i}\n" for i in range(9)), encoding="utf-8")
    error = problem(path)
    assert "a.csv, line 1: no column looks like labels; the columns are 'text'" in str(error)
    assert "--label-column" in error.remedy
    (tmp_path / "a.txt").write_text("just text\n", encoding="utf-8")
    assert "a plain text file has no labels" in str(problem(tmp_path / "a.txt"))


def test_labels_become_names(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    values: list[Any] = [1, 1.0, "1.0", "01", True, False, 2.5, " spaced name ", "v1.0"]
    jsonl(path, [{"text": "t", "label": value} for value in values])
    found = [example.label for example in Classify.read(path, Data())[0]]
    assert found == ["1", "1", "1", "01", "true", "false", "2.5", "spaced name", "v1.0"]


@pytest.mark.parametrize(
    ("label", "told"),
    [
        ("NaN", "nan, not a label"),
        ("null", "is empty"),
        ('" "', "is empty"),
        ('"nan"', "nan, not a label"),
        ('["a"]', "is a list"),
        ("Infinity", "inf, not a label"),
    ],
)
def test_missing_labels_name_their_line(tmp_path: Path, label: str, told: str) -> None:
    path = tmp_path / "a.jsonl"
    rows = ['"x"', '"y"', label]
    path.write_text(
        "".join(f'{{"text": "a", "label": {value}}}\n' for value in rows), encoding="utf-8"
    )
    error = problem(path)
    assert error.line == 3
    assert told in str(error)
    assert str(path) in str(error)


def test_rows_without_text_go_with_their_labels_and_are_noted(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        *many(12),
        {"text": " ", "label": "only-here"},
        {"text": None, "label": None},
    ]
    splits = read_splits(
        Data(
            train=jsonl(tmp_path / "a.jsonl", rows),
            dev=jsonl(tmp_path / "d.jsonl", many(4, word="dev")),
        )
    )
    assert len(splits.train) == 12
    assert "train: 2 rows without text left out (lines 13, 14)" in splits.notes
    assert "train: text column 'text', label column 'label'" in splits.notes
    assert "train: 12 examples, 2 labels" in splits.notes
    jsonl(tmp_path / "a.jsonl", [{"text": "", "label": "a"}])
    assert "no row has a text" in str(problem(tmp_path / "a.jsonl"))


def test_a_folder_per_label(tmp_path: Path) -> None:
    files = (
        ("pos", "1.txt", "great\nfilm"),
        ("pos", "2.txt", " \n"),
        ("neg", "1.txt", "dull"),
        ("neg", ".x.txt", "no"),
    )
    for label, name, text in files:
        (tmp_path / "data" / label).mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / label / name).write_text(text, encoding="utf-8")
    examples, _ = Classify.read(tmp_path / "data", Data())
    assert [(example.text, example.label) for example in examples] == [
        ("dull", "neg"),
        ("great\nfilm", "pos"),
    ]
    assert examples[0].file.endswith("neg/1.txt")
    (tmp_path / "data" / "stray.txt").write_text("x", encoding="utf-8")
    assert "stray.txt, line 1: a text file is outside the labels' folders" in str(
        problem(tmp_path / "data")
    )
    (tmp_path / "none").mkdir()
    assert "the folder contains no text files" in str(problem(tmp_path / "none"))


def test_unlabelled_rows_all_stay(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    jsonl(path, [{"text": "a"}, {"text": ""}, {"text": "c", "label": None}])
    examples, columns = Classify.read(path, Data(), labelled=False)
    assert [(example.text, example.label) for example in examples] == [
        ("a", None),
        ("", None),
        ("c", None),
    ]
    assert columns == ["text column 'text'"]
    (tmp_path / "a.txt").write_text("one\ntwo\n", encoding="utf-8")
    assert [
        example.text for example in Classify.read(tmp_path / "a.txt", Data(), labelled=False)[0]
    ] == ["one", "two"]


def test_missing_files(tmp_path: Path) -> None:
    error = problem(Data(train=str(tmp_path / "no.csv")))
    assert f"{tmp_path}/no.csv" in str(error)
    assert "there is no such file" in str(error)
    assert "tasklm fit TRAIN" in problem(Data()).remedy


def test_one_class_only(tmp_path: Path) -> None:
    error = problem(Data(train=jsonl(tmp_path / "a.jsonl", many(10, "a"))))
    assert (
        "a.jsonl, line 1: all 10 examples have the same label, 'a'. Add examples of another label"
        in str(error)
    )


def test_a_label_that_occurs_only_in_test(tmp_path: Path) -> None:
    train = jsonl(tmp_path / "a.jsonl", many(10))
    dev = jsonl(tmp_path / "d.jsonl", many(4, word="dev"))
    test = jsonl(tmp_path / "t.jsonl", [*many(3, word="test"), {"text": "strange", "label": "c"}])
    error = problem(Data(train=train, dev=dev, test=test))
    assert (
        "t.jsonl, line 4: label 'c' occurs in test but "
        "not in train; 1 of 4 examples have such labels"
    ) in str(error)
    assert "Add training examples with this label" in error.remedy


def test_dev_and_test_have_the_columns_of_train(tmp_path: Path) -> None:
    train = jsonl(tmp_path / "a.jsonl", many(10))
    error = problem(
        Data(train=train, dev=jsonl(tmp_path / "d.jsonl", [{"sentence": "x", "label": "a"}]))
    )
    assert "d.jsonl, line 1: there is no column 'text'; the columns are 'sentence', 'label'" in str(
        error
    )
    error = problem(Data(train=train, kind="classify", dev=str(tmp_path / "d.jsonl")))
    assert "d.jsonl, line 1: dev has other columns than train: text column 'sentence'" in str(error)


def test_a_test_file_without_labels_is_for_predict(tmp_path: Path) -> None:
    train = jsonl(tmp_path / "a.jsonl", many(10))
    bare = jsonl(tmp_path / "t.jsonl", [{"text": row["text"]} for row in many(5, word="test")])
    error = problem(Data(train=train, test=bare))
    assert (
        "t.jsonl, line 1: there is no column 'label'" in str(error)
        and "leave --test out" in error.remedy
    )
    for data in (
        Data(train=train, dev=bare),
        Data(train=train, test=jsonl(tmp_path / "n.jsonl", [{"number": 1}])),
    ):
        assert (
            "leave --test out" not in problem(data).remedy
        )  # dev chooses the model, and what has no text cannot be predicted


def test_the_hold_out_is_stratified_deterministic_and_keeps_equal_texts_together(
    tmp_path: Path,
) -> None:
    rows = [*many(200, "aaab"), *many(60, "aaab"), {"text": "rare", "label": "c"}]
    data = Data(train=jsonl(tmp_path / "a.jsonl", rows), dev_share=0.2)
    splits = read_splits(data)
    assert len(splits.train) + len(splits.dev) == 261
    assert 45 <= len(splits.dev) <= 52
    dev = Counter(example.label for example in splits.dev)
    assert dev["c"] == 0
    assert abs(dev["b"] / len(splits.dev) - 0.25) < 0.05
    assert not {text_key(example.text) for example in splits.train} & {
        text_key(example.text) for example in splits.dev
    }
    jsonl(tmp_path / "a.jsonl", rows[::-1])
    again = read_splits(data)
    assert {example.text for example in again.dev} == {example.text for example in splits.dev}
    assert any("held out of train" in note for note in splits.notes)


def test_every_class_keeps_a_training_example(tmp_path: Path) -> None:
    rows = [{"text": f"{label} {i}", "label": label} for label in "abcdef" for i in range(4)]
    splits = read_splits(Data(train=jsonl(tmp_path / "a.jsonl", rows), dev_share=0.5))
    assert {example.label for example in splits.train} == set("abcdef")
    assert len(splits.dev) == 12
    same = [{"text": "the same", "label": "a"}] * 5 + [{"text": "the other", "label": "b"}] * 5
    error = problem(Data(train=jsonl(tmp_path / "a.jsonl", same)))
    assert "10 examples are too few to hold out a share of 0.1 as dev" in str(error)
    assert "--dev" in error.remedy


def test_leaks_are_dropped_from_the_training_side(tmp_path: Path) -> None:
    train, dev, test = many(20), many(4, word="dev"), many(4, word="test")
    leaky = [{**row, "text": row["text"].upper() + "  "} for row in (dev[0], test[0], test[1])]
    files = {
        "train": jsonl(tmp_path / "a.jsonl", [*train, *leaky]),
        "dev": jsonl(tmp_path / "d.jsonl", [*dev, test[0]]),
        "test": jsonl(tmp_path / "t.jsonl", test),
    }
    splits = read_splits(Data(leaks="drop", **files))
    assert [len(splits.train), len(splits.dev), len(splits.test)] == [20, 4, 4]
    assert "train: 3 examples left out because they also occur in dev or test" in splits.notes
    assert "dev: 1 examples left out because they also occur in test" in splits.notes
    for leaks in ("refuse", "keep"):
        kept = read_splits(Data(leaks=leaks, **files))
        assert [len(kept.train), len(kept.dev)] == [23, 5]
    error = problem(Data(leaks="drop", train=files["test"], dev=files["dev"], test=files["test"]))
    assert "every example of train also occurs in a later split" in str(error)


def test_dropping_leaks_may_leave_a_label_without_training_examples(tmp_path: Path) -> None:
    files = {
        "train": jsonl(tmp_path / "a.jsonl", [*many(10), {"text": "the only c", "label": "c"}]),
        "dev": jsonl(
            tmp_path / "d.jsonl", [*many(2, word="dev"), {"text": "The only C", "label": "c"}]
        ),
    }
    error = problem(Data(leaks="drop", **files))
    assert (
        "d.jsonl, line 3: label 'c' occurs in dev but not in train (after examples in two splits"
    ) in str(error)


def test_a_folder_of_splits_of_a_stated_kind_is_read(tmp_path: Path) -> None:
    """Its tables have the columns of several kinds, of which one is wanted."""
    (tmp_path / "trees").mkdir()
    row = {"tokens": ["a", "b"], "upos": ["X", "Y"], "heads": [0, 1], "deprels": ["root", "dep"]}
    for split in ("train", "dev"):
        write_jsonl(tmp_path / "trees" / f"{split}.jsonl", [row | {"upos": ["X", split]}])
    tag = Data(train=str(tmp_path / "trees"), kind="tag", text_column="tokens", label_column="upos")
    splits = read_splits(tag)
    assert [one.label for one in splits.train] == [["X", "train"]]
    assert [one.label for one in splits.dev] == [["X", "dev"]]
    assert resolved(tag).kind == "tag" and resolved(Data(train=tag.train)).kind == "parse"
