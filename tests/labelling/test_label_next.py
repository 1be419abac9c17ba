"""The verb and Python's `label_next`: what is asked for, what is left out, what is refused."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from tasklm import TaskLM
from tasklm.cli.app import app
from tasklm.errors import DataError, RecipeError, RunError
from tasklm.labelling import suggesting
from tasklm.labelling.suggesting import Labeller
from tasklm.recipe.data_sections import Data
from tasklm.storage.files import write_json
from tasklm.tasks.classify import Classify
from tasklm.tasks.readers.splits import read_splits, resolved
from tasklm.tokens.tokenizer import Vocabulary
from tasklm.tracking import SILENT
from tests.conftest import labelled, sentences, write_jsonl
from tests.labelling.runs import linear_run
from tests.test_start_up import SLOW, command

GAIN = {"labels": 120, "gain": 1.8, "low": 1.2, "high": 2.4}
GROWTH = {
    "growth": {
        "metric": "macro_f1",
        "examples": 60,
        "measured": [[60, 90]],
        "fitted": [[60, 90], [120, 91.8]],
        "more": GAIN,
        "twice": GAIN,
    }
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, vocabulary: Vocabulary) -> Path:
    folder = tmp_path_factory.mktemp("labelled")
    files = {
        split: write_jsonl(folder / f"{split}.jsonl", labelled(count, seed))
        for seed, (split, count) in enumerate({"train": 60, "dev": 30, "test": 10}.items(), 1)
    }
    made = linear_run(folder / "run", vocabulary, files)
    write_json(made / "scores.json", {"metric": "macro_f1", "labels": [], "rows": [], **GROWTH})
    return made


@pytest.fixture(scope="module")
def pile(run: Path) -> Path:
    """New texts, among them copies, near copies, and texts of train and test."""
    own = [json.loads(line)["text"] for line in (run.parent / "train.jsonl").open()]
    own += [json.loads(line)["text"] for line in (run.parent / "test.jsonl").open()]
    new = sentences(200, 50)
    long = "the cat sees water and the dog likes music while one bird hears the rain " * 3
    near = [long + "today", long + "tonight"]
    path = run.parent / "pile.jsonl"
    return write_jsonl(path, [{"text": text} for text in [*own, *new, new[0].upper(), *near]])


def label_next(*words: object) -> Result:
    return CliRunner().invoke(app, ["label-next", *map(str, words)])


def rows_of(printed: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(printed)))


def test_the_command_prints_rows_to_fill_in(run: Path, pile: Path) -> None:
    shown = label_next(run, "--from", pile, "--n", 20)
    assert shown.exit_code == 0, shown.output
    rows = rows_of(shown.stdout)
    assert list(rows[0]) == ["text", "label", "doubt", "reason"] and len(rows) == 20
    assert all(row["label"] == "" and 0 <= float(row["doubt"]) <= 1 for row in rows)
    assert all(row["reason"].startswith("between ") for row in rows)
    assert "273 texts read; 70 occur in train, dev or test; 1 are copies" in shown.stderr
    assert "1 are near copies" in shown.stderr and "20 chosen" in shown.stderr
    assert "outlook: 100 more labels: +1.8 ± 0.6; twice the labels (120)" in shown.stderr


def test_the_outlook_is_measured_where_the_run_has_none(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suggesting, "SECONDS", 1.0)
    monkeypatch.setattr(suggesting, "SCORES", "none.json")
    assert "twice the labels (120): +" in Labeller.of(run).outlook(SILENT)


def test_what_is_labelled_is_not_asked_for_and_nothing_twice(run: Path, pile: Path) -> None:
    found = Labeller.of(run).from_pile(Labeller.of(run).pile([str(pile)]), 500, SILENT)
    texts = [one.example.text for one in found.suggestions]
    own = {
        json.loads(line)["text"]
        for split in ("train", "dev", "test")
        for line in (run.parent / f"{split}.jsonl").open()
    }
    assert len(set(texts)) == len(texts) and not own & set(texts)
    assert len(texts) == found.candidates < 500


def test_python_says_what_the_command_says_and_says_it_again(run: Path, pile: Path) -> None:
    model = TaskLM.load(run)
    rows = model.label_next(pile, n=15)
    printed = rows_of(label_next(run, "--from", pile, "--n", 15).stdout)
    assert [row["text"] for row in rows] == [row["text"] for row in printed]
    assert all(row["label"] is None for row in rows)
    texts = [json.loads(line)["text"] for line in pile.open()]
    assert model.label_next(texts[::-1], n=15) == rows


def test_the_files_of_a_pile_may_have_any_format(run: Path, pile: Path, tmp_path: Path) -> None:
    texts = [json.loads(line)["text"] for line in pile.open()]
    folder = tmp_path / "pile"
    folder.mkdir()
    (folder / "a.csv").write_text("\n".join(["body,n", *(f'"{t}",1' for t in texts[:80])]))
    (folder / "b.tsv").write_text("\n".join(["text", *texts[80:150]]))
    pq.write_table(pa.table({"content": texts[150:-1]}), folder / "c.parquet")
    (folder / "one.txt").write_text(texts[-1])
    (tmp_path / "lines.txt").write_text("\n".join(texts) + "\n\n")
    rows = TaskLM.load(run).label_next(pile, n=10)
    assert TaskLM.load(run).label_next(folder, n=10) == rows
    assert TaskLM.load(run).label_next(tmp_path / "lines.txt", n=10) == rows


def test_filled_rows_train_and_blank_ones_are_counted(
    run: Path, pile: Path, tmp_path: Path
) -> None:
    for suffix in ("csv", "jsonl"):
        sheet = tmp_path / f"next.{suffix}"
        assert label_next(run, "--from", pile, "--n", 10, "--out", sheet).exit_code == 0
        with pytest.raises(DataError, match="none of the 10 rows has a label yet"):
            Classify.read(sheet, Data(kind="classify"))
        _fill(sheet, 4)
        examples, notes = Classify.read(sheet, Data(kind="classify"))
        assert [example.label for example in examples] == ["yes", "no", "yes", "no"]
        assert notes == [
            "text column 'text', label column 'label'",
            "6 rows without a label yet left out",
        ]
        again = label_next(run, "--from", pile, "--out", sheet)
        assert again.exit_code != 0 and "exists" in str(again.exception)


def test_a_sheet_and_the_old_rows_are_read_from_one_file(
    run: Path, pile: Path, tmp_path: Path
) -> None:
    sheet, more = tmp_path / "next.jsonl", tmp_path / "more.jsonl"
    assert label_next(run, "--from", pile, "--n", 10, "--out", sheet).exit_code == 0
    _fill(sheet, 4)
    more.write_text(sheet.read_text() + (run.parent / "train.jsonl").read_text())
    splits = read_splits(resolved(Data(train=str(more), dev=str(run.parent / "dev.jsonl"))))
    assert len(splits.train) == 64
    assert "train: 6 rows without a label yet left out" in splits.notes


def _fill(sheet: Path, count: int) -> None:
    """Fills in the labels of the first rows, as a person would."""
    lines = sheet.read_text().splitlines()
    if sheet.suffix == ".jsonl":
        rows = [json.loads(line) for line in lines]
        for number in range(count):
            rows[number]["label"] = "yes" if number % 2 == 0 else "no"
        write_jsonl(sheet, rows)
        return
    rows = rows_of(sheet.read_text())
    with sheet.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        for number, row in enumerate(rows):
            label = ("yes" if number % 2 == 0 else "no") if number < count else ""
            writer.writerow({**row, "label": label})


def test_a_blank_label_in_another_table_stays_an_error(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "t.jsonl", [*labelled(9, 1), {"text": "x y", "label": ""}])
    with pytest.raises(DataError, match="is empty"):
        Classify.read(path, Data(kind="classify"))


def test_a_linear_model_ranks_without_torch(run: Path, pile: Path) -> None:
    modules, lines = command("label-next", str(run), "--from", str(pile), "--n", "3")
    assert len(lines) == 4 and "torch" in SLOW and "torch" not in modules


def test_what_cannot_be_done_is_refused_with_the_way_out(
    run: Path, pile: Path, tmp_path: Path
) -> None:
    model = TaskLM.load(run)
    with pytest.raises(RecipeError, match="from 1 to 10,000"):
        model.label_next(pile, n=0)
    with pytest.raises(DataError, match=r"none of the 60 texts is new.*--from"):
        model.label_next(run.parent / "train.jsonl")
    pairs = write_jsonl(tmp_path / "pairs.jsonl", [{"text_a": "one", "text_b": "two"}])
    with pytest.raises(DataError, match=r"pairs.jsonl.*pair of texts, but the model takes one"):
        model.label_next(pairs)
    out = label_next(run, "--from", pile, "--out", tmp_path / "next.xlsx")
    assert out.exit_code != 0 and ".csv or .jsonl" in str(out.exception)
    model.save(tmp_path / "saved")
    with pytest.raises(RunError, match="its training data is recorded in its run folder"):
        TaskLM.load(tmp_path / "saved").label_next(pile)
