"""The bill of text of runs: what was read is counted again from the files, text is left out as if it
were not there, and the bill leads to the same model again.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from tasklm import TaskLM, verify_bill
from tasklm.bill.record import BILL, Bill, TextPart, read_bill
from tasklm.cli.app import app
from tasklm.corpus.dedupe import text_key
from tasklm.corpus.passages import split_passages
from tasklm.errors import DataError, RecipeError, RunError
from tasklm.export.publishing import published
from tasklm.pipeline.flow import fit
from tasklm.recipe.toml import load
from tasklm.storage.files import read_json
from tasklm.tokens.tokenizer import Vocabulary
from tasklm.tracking import SILENT
from tests.conftest import labelled, write_jsonl
from tests.end_to_end.bill_data import FAST, trained, write

runner = CliRunner()
pytestmark = pytest.mark.usefixtures("speed_is_not_measured")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    folder = tmp_path_factory.mktemp("bill data")
    return folder, write(folder)


@pytest.fixture(scope="module")
def run(data: tuple[Path, dict[str, str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, which reads its text more than once, in part."""
    folder = tmp_path_factory.mktemp("runs") / "first"
    more = {"data.licences": "größe.txt=CC-BY-SA-4.0", "train.held_out": "1"}
    fit(load(None, {**data[1], **more}), folder, SILENT)
    return folder


def parts_of(bill: Bill) -> dict[tuple[str, str], TextPart]:
    """The parts of the corpus by file and licence."""
    return {
        ("/".join(Path(file.path).parts[-2:]), part.licence): part
        for file in bill.corpus
        for part in file.parts
    }


def recounted(data: Path, run: Path, corpus: list[Path]) -> dict[tuple[str, str], Counter[str]]:
    """What a run has of each file and licence, counted from its files, tokens and steps."""
    owner: dict[int, tuple[str, str]] = {}
    counts: dict[tuple[str, str], Counter[str]] = {}
    places: dict[int, set[Path]] = {}
    for path in corpus:
        for text, licence in _documents(path):
            name = "/".join(path.parts[-2:]), licence
            for passage in split_passages(text, 256):
                key = text_key(passage)
                own = counts.setdefault(name, Counter())
                own["repeats"] += key in owner
                owner.setdefault(key, name)
                places.setdefault(key, set()).add(path)
    for key, name in owner.items():
        counts[name]["passages"] += 1
        counts[name]["elsewhere"] += len(places[key]) > 1
    vocabulary = Vocabulary.load(run / "tokens" / "tokenizer.json")
    read = np.load(run / "stage1" / "text-read.npy")
    selected = pq.read_table(run / "selected" / "selected.parquet").to_pylist()
    for row, tokens in zip(selected, read.tolist(), strict=True):
        own = counts[owner[int(row["id"], 16)]]
        own["selected"] += 1
        own["tokens"] += len(vocabulary.encode([row["text"]])[0])
        own["tokens_read"] += tokens
    for found in read_json(run / "decontaminated" / "found.json")["examples"]:
        counts[owner[int(found["id"], 16)]]["contaminated"] += 1
    return counts


def _documents(path: Path) -> list[tuple[str, str]]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".txt":
        return [(text, "CC-BY-SA-4.0")]
    rows = [json.loads(line) for line in text.splitlines()]
    otherwise = "MIT License" if path.parent.name == "wiki" else "not stated"
    return [(row["text"], row.get("license") or otherwise) for row in rows]


def test_a_bill_is_a_recount_of_files_shards_and_steps(
    data: tuple[Path, dict[str, str]], run: Path
) -> None:
    bill = read_bill(run)
    corpus = sorted((data[0] / "texts").rglob("*.[jt]*"), key=str)
    assert [file.path for file in bill.corpus] == [str(path) for path in corpus]
    for file in (*bill.corpus, *(one for data in bill.labelled for one in data.files)):
        path, sha256 = (
            (file["path"], file["sha256"]) if isinstance(file, dict) else (file.path, file.sha256)
        )
        assert hashlib.sha256(Path(path).read_bytes()).hexdigest() == sha256
    counts = recounted(data[0], run, corpus)
    measured = parts_of(bill)
    assert measured.keys() == counts.keys()
    for name, part in measured.items():
        for what in ("passages", "repeats", "elsewhere", "contaminated", "selected", "tokens"):
            assert getattr(part, what) == counts[name][what], (name, what)
        assert part.tokens_read == part.tokens_read_by_run == counts[name]["tokens_read"]
    sums = {what: sum(counts[name][what] for name in counts) for what in ("elsewhere", "repeats")}
    assert sums["elsewhere"] == 5 and sums["repeats"] == 6
    assert sum(part.near_copies for part in measured.values()) == 1
    assert sum(part.contaminated for part in measured.values()) == 1
    assert measured["wiki/a b.jsonl", "MIT License"].licence_from == "file LICENCE"
    assert measured["wiki/a b.jsonl", "CC0-1.0"].licence_from == "column license"
    assert measured["texts/größe.txt", "CC-BY-SA-4.0"].licence_from == "--licence größe.txt"


def test_all_tokens_of_all_steps_are_in_the_bill(run: Path) -> None:
    bill, summary = read_bill(run), read_json(run / "stage1" / "summary.json")
    shares = [part.share for _, part in bill.parts()]
    assert sum(shares) == pytest.approx(1) and all(0 <= share <= 1 for share in shares)
    assert bill.totals["held_out"] == 1
    assert sum(part.tokens_read for _, part in bill.parts()) == bill.tokens_read
    # text fills its rows but for [CLS], [SEP] and short rests
    rows = (summary["steps"] - -(-summary["steps"] // (1 + summary["rho1"]))) * summary["batch"]
    read = bill.totals["tokens_read_of_text"]
    assert 0.6 * rows * 32 < read < rows * 30
    (train, dev, test) = bill.labelled
    examples = [one.parts[0].examples for one in (train, dev, test)]
    assert examples == [{"train": 80}, {"dev": 30}, {"test": 30}]
    vocabulary = Vocabulary.load(run / "tokens" / "tokenizer.json")
    texts = [str(row["text"]) for row in labelled(80, 1)]
    sizes = np.array([min(30, len(row)) for row in vocabulary.encode(texts)])
    assert train.parts[0].tokens == sizes.sum()
    times = np.load(run / "stage1" / "examples-read.npy")
    assert train.parts[0].tokens_read == bill.totals["tokens_read_of_examples"] == sizes @ times
    assert not dev.parts[0].tokens_read and not test.parts[0].tokens_read
    counted = sum(part.tokens_counted for file in bill.corpus for part in file.parts)
    lengths = np.diff(np.load(run / "tokens" / "offsets.npy"))
    read_at_all = np.load(run / "stage1" / "text-read.npy")
    assert counted == lengths[np.load(run / "stage1" / "text-counted.npy") > 0].sum() > 0
    assert (read_at_all == 0).sum() >= 1


def without(folder: Path, given: dict[str, str], *gone: str) -> dict[str, str]:
    """The recipe of a run for a copy of the corpus in which some files are gone."""
    shutil.copytree(given["data.corpus"], folder)
    for name in gone:
        (folder / name).unlink()
    return {**given, "data.corpus": str(folder)}


def test_text_is_left_out_as_if_it_were_not_there(
    data: tuple[Path, dict[str, str]], run: Path, tmp_path: Path
) -> None:
    given = data[1]
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(read_bill(run).recipe, encoding="utf-8")
    words = ["run", str(recipe), "--without", "news", "--without", "größe.txt"]
    done = runner.invoke(app, [*words, "--out", str(tmp_path / "left" / "out")])
    assert done.exit_code == 0, done.output
    left_out = read_bill(tmp_path / "left" / "out")
    copy = without(tmp_path / "copy", given, "news/a b.jsonl", "größe.txt")
    never = trained(tmp_path / "never" / "run", copy, train__held_out=1)
    assert left_out.model["sha256"] == never.model["sha256"]
    assert left_out.model["sha256"] != read_bill(run).model["sha256"]
    assert [Path(one["path"]).name for one in left_out.left_out] == ["größe.txt", "a b.jsonl"]
    assert [Path(file.path).parent.name for file in left_out.corpus] == ["wiki"]
    whole, rest = (parts_of(one)["wiki/a b.jsonl", "CC0-1.0"] for one in (read_bill(run), left_out))
    assert rest.passages > whole.passages  # what the left-out file owned before
    assert not rest.elsewhere


def test_rows_of_a_licence_are_left_out_as_if_they_were_not_there(
    data: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    given = data[1]
    bill = trained(tmp_path / "one" / "run", given, data__without="licence:cc-by-nc*")
    copy = without(tmp_path / "copy", given)
    path = tmp_path / "copy" / "wiki" / "a b.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(line for line in lines if "NC" not in line), encoding="utf-8")
    never = trained(tmp_path / "two" / "run", copy)
    assert bill.model["sha256"] == never.model["sha256"]
    (wiki,) = [file for file in bill.corpus if "wiki" in file.path]
    assert wiki.left_out == sum("NC" in line for line in lines) == 16
    assert {part.licence for part in wiki.parts} == {"CC0-1.0", "MIT License"}


def test_the_recipe_and_the_files_of_a_bill_make_the_same_model_again(
    run: Path, tmp_path: Path
) -> None:
    recipe = tmp_path / "again.toml"
    done = runner.invoke(app, ["bill", str(run), "--recipe", str(recipe)])
    assert done.exit_code == 0 and recipe.exists()
    folder = tmp_path / "other" / "again"
    fit(load(recipe), folder, SILENT)
    first, again = read_bill(run), read_bill(folder)
    assert first.model["sha256"] == again.model["sha256"]
    assert (first.corpus, first.labelled, first.totals) == (
        again.corpus,
        again.labelled,
        again.totals,
    )
    repeated = runner.invoke(app, ["bill", str(run), "--recipe", str(recipe)])
    assert isinstance(repeated.exception, RecipeError)


def test_the_verb_shows_a_run_and_a_saved_model(run: Path, tmp_path: Path) -> None:
    shown = runner.invoke(app, ["bill", str(run)])
    assert shown.exit_code == 0 and "CC-BY-SA-4.0" in shown.output
    assert "no network call was seen" in shown.output
    whole = json.loads(runner.invoke(app, ["bill", str(run), "--json"]).stdout)
    assert whole == read_bill(run).to_dict()
    assert "What the model has read" in (run / "report.html").read_text(encoding="utf-8")
    model = TaskLM.load(run)
    assert model.bill().bill == read_bill(run)
    model.save(tmp_path / "saved")
    saved = TaskLM.load(tmp_path / "saved").bill().bill
    assert saved.totals == read_bill(run).totals and saved.corpus[0].path == "größe.txt"
    with pytest.raises(RunError, match="names of files alone"):
        verify_bill(tmp_path / "saved")
    both = runner.invoke(app, ["bill", str(run), "--verify", "--recipe", "x.toml"])
    assert isinstance(both.exception, RecipeError)
    none = runner.invoke(app, ["bill", str(tmp_path)])
    assert isinstance(none.exception, RunError)


def test_a_copy_of_the_model_has_its_bill_without_places(run: Path, tmp_path: Path) -> None:
    whole = read_bill(run / "model")
    assert whole == read_bill(run) and Path(whole.corpus[0].path).is_absolute()
    shutil.copytree(run / "model", tmp_path / "copy")
    assert read_bill(tmp_path / "copy") == published(whole)
    text = (tmp_path / "copy" / BILL).read_text(encoding="utf-8")
    assert str(run.parent) not in text and str(Path(whole.corpus[0].path).parent) not in text
    assert BILL not in whole.model["files"]


def test_a_bill_of_an_earlier_model_is_refused_until_the_run_is_finished(
    data: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    given, run = {**data[1], "data.corpus": "", "train.steps": "2"}, tmp_path / "run"
    before = trained(run, given)
    fit(load(None, {**given, "train.steps": "3"}), run, SILENT, until="finetune")
    (run / "model").rename(tmp_path / "earlier model")
    shutil.copytree(run / "tokens", run / "model")  # any other artefact
    with pytest.raises(RunError, match=r"is newer than its bill of text\. Finish the run"):
        read_bill(run)
    shutil.rmtree(run / "model")
    assert trained(run, {**given, "train.steps": "3"}).model["sha256"] != before.model["sha256"]


def test_labelled_data_that_changes_while_it_is_read_is_refused(
    data: tuple[Path, dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tasklm.tasks.readers import labelled_share

    given = {**data[1], "data.dev": "", "data.test": "", "data.corpus": ""}
    train = write_jsonl(tmp_path / "train.jsonl", labelled(40, 1))
    read = labelled_share.read_splits

    def slow(own: Any) -> Any:
        splits = read(own)
        write_jsonl(train, labelled(41, 1))
        return splits

    monkeypatch.setattr(labelled_share, "read_splits", slow)
    with pytest.raises(DataError, match="the file changed while it was read"):
        trained(tmp_path / "run", {**given, "data.train": str(train)})


def test_several_trainings_each_have_their_reading(
    data: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    bill = trained(tmp_path / "run", data[1], train__seeds=2, evaluate__ensemble="true")
    reads = [np.load(tmp_path / "run" / name / "text-read.npy") for name in ("stage1", "stage1-2")]
    parts = [part for file in bill.corpus for part in file.parts]
    own = reads[bill.model["training"] - 1]
    assert sum(part.tokens_read for part in parts) == own.sum()
    assert sum(part.tokens_read_by_run for part in parts) == reads[0].sum() + reads[1].sum()
    assert bill.model["ensemble"]["files"].keys() > {"config.json"}


def test_labels_have_licences_roles_and_leaks(tmp_path: Path) -> None:
    rows = [{**row, "license": "MIT" if i % 4 else ""} for i, row in enumerate(labelled(60, 1))]
    train = write_jsonl(tmp_path / "train.jsonl", [*rows, *labelled(20, 3)[:5]])
    test = write_jsonl(tmp_path / "test.jsonl", labelled(20, 3))
    given = {**FAST, "data.train": str(train), "data.test": str(test), "data.leaks": "drop"}
    bill = trained(tmp_path / "run", given, train__steps=2, data__licences="test.jsonl=CC0-1.0")
    own, scored = bill.labelled
    assert own.leaks >= 5
    examples = Counter[str]()
    for part in own.parts:
        examples.update(part.examples)
    assert {part.licence for part in own.parts} == {"MIT", "not stated"}
    assert examples["train"] + examples["dev"] + own.leaks == 65
    assert scored.parts[0].licence == "CC0-1.0" and scored.parts[0].examples == {"test": 20}
    assert bill.corpus == [] and bill.totals["tokens_read_of_text"] == 0
    assert sum(part.share for _, part in bill.parts()) == pytest.approx(1)
