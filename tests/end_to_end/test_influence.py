"""Influence selection from files to scores, chained behind another selector."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from tasklm.bill.record import read_bill
from tasklm.cli.app import app
from tasklm.errors import DataError, RecipeError
from tasklm.influence.scores import Influence
from tasklm.pipeline import selection
from tasklm.pipeline.flow import fit
from tasklm.recipe.schema import Recipe
from tasklm.recipe.toml import load
from tasklm.select.influence import InfluenceScores
from tasklm.tasks.examples import Splits
from tasklm.tracking import Tracker
from tests.end_to_end.conftest import options, until
from tests.end_to_end.forking import Commands
from tests.end_to_end.test_processes import quick

QUICK = {"select__passages": "100", "select__influence_steps": "20", "select__near_duplicates": "0"}


def chained(files: Path, first: str = "bm25", **changes: str) -> Recipe:
    given = {
        "select__method": f"{first},influence",
        **QUICK,
        "finetune__seeds": "1",
        "finetune__epochs": "1",
    }
    return load(None, options(files, **{**given, **changes}))


@pytest.fixture(scope="module")
def done(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    scores = fit(chained(files), folder, Tracker())
    assert scores is not None and scores.rows[-1].name == "BM25 + influence selection (ISS)"
    assert scores.rows[-1].selected_passages == 20
    return folder


def rows(folder: Path, name: str = "selected") -> list[dict[str, object]]:
    found: list[dict[str, object]] = pq.read_table(folder / name / "selected.parquet").to_pylist()
    return found


def test_a_fifth_of_the_candidates_is_selected_and_trained_on(done: Path, files: Path) -> None:
    candidates, chosen = rows(done, "candidates"), rows(done)
    assert (len(candidates), len(chosen)) == (100, 20)
    texts = {row["id"]: (row["text"], row["source"], row["number"]) for row in candidates}
    assert all(texts[row["id"]] == (row["text"], row["source"], row["number"]) for row in chosen)
    scores = InfluenceScores(done / "influence").of_tasks(0, 60)  # one task batch per dev example
    place = {row["id"]: i for i, row in enumerate(candidates)}
    for row in chosen:
        assert row["score"] == scores[:, place[row["id"]]].max()
        best = row["matched_queries"][0]  # type: ignore[index]
        assert (scores[best] > scores[best, place[row["id"]]]).sum() == row["rank"]
    summary = json.loads((done / "scoring-model" / "summary.json").read_text())
    assert (summary["steps"], summary["rho1"]) == (20, 0)
    dev = [
        json.loads(line)["text"]
        for line in (files / "dev.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    report = (done / "report.html").read_text(encoding="utf-8")
    assert all(
        dev[number] in report for row in chosen[:10] for number in row["matched_queries"][:3]
    )  # type: ignore[index]
    assert pq.read_schema(done / "selected" / "selected.parquet").metadata[b"asking"] == b"dev"


def test_the_bill_has_the_chosen_and_not_the_candidates(done: Path) -> None:
    bill = read_bill(done)
    (part,) = bill.corpus[0].parts
    read = np.load(done / "stage1" / "text-read.npy")
    assert (part.selected, part.tokens_read) == (20, read.sum()) and len(read) == 20
    assert part.tokens == np.load(done / "tokens" / "offsets.npy")[-1]
    assert {"candidates", "influence", "scoring-model"} < bill.artefacts.keys()


def test_explain_names_the_batches_that_asked_and_the_words_that_made_it_a_candidate(
    done: Path, files: Path
) -> None:
    candidates, row = rows(done, "candidates"), rows(done)[3]
    found = json.loads(
        CliRunner().invoke(app, ["select", str(done), "--explain", str(row["id"]), "--json"]).stdout
    )
    dev = [
        json.loads(line) for line in (files / "dev.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    reasons, asked = found["influence"], row["matched_queries"][:5]  # type: ignore[index]
    assert [batch["texts"] for batch in reasons["batches"]] == [
        [dev[number]["text"]] for number in asked
    ]
    assert [batch["labels"] for batch in reasons["batches"]] == [
        [dev[number]["label"]] for number in asked
    ]
    assert reasons["batches"][0]["rank"] == row["rank"] and reasons["best"] == row["score"]
    assert candidates[reasons["place"]]["id"] == row["id"] and reasons["candidates"] == 100
    assert found["queries"] and all(asker["terms"] for asker in found["queries"])
    shown = CliRunner().invoke(app, ["select", str(done), "--explain", str(row["id"])]).stdout
    assert (
        "position 4 in the selection" in shown
        and f"candidate {reasons['place'] + 1} of 100 by bm25" in shown
    )


def test_another_share_computes_no_gradient(
    done: Path, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = rows(done)

    def never(*_: object) -> None:
        raise AssertionError("gradients were computed again")

    monkeypatch.setattr(selection, "score_blocks", never)
    monkeypatch.setattr(selection, "Influence", never)
    fit(chained(files, select__influence_share="0.3"), done, Tracker(), until="select")
    after = rows(done)
    assert len(after) == 30 and [row["id"] for row in after[:20]] == [row["id"] for row in before]


def test_a_killed_scoring_ends_in_the_same_scores(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks, finish, score = selection.score_blocks, selection.finish_scores, Influence.scores
    monkeypatch.setattr(selection, "score_blocks", lambda *given: blocks(*given, 16))
    monkeypatch.setattr(selection, "finish_scores", lambda *given: finish(*given, 16))

    def dies(self: Influence, start: int, stop: int) -> np.ndarray:
        if start >= 32:
            raise KeyboardInterrupt
        return score(self, start, stop)

    with monkeypatch.context() as patch:
        patch.setattr(Influence, "scores", dies)
        with pytest.raises(KeyboardInterrupt):
            fit(chained(files), tmp_path / "cut", Tracker(), until="select")
    assert len(list((tmp_path / "cut" / "influence.partial").glob("block-*"))) == 2
    for name in ("cut", "whole"):
        fit(chained(files), tmp_path / name, Tracker(), until="select")
    ours, theirs = (
        InfluenceScores(tmp_path / name / "influence").of_tasks(0, 60) for name in ("cut", "whole")
    )
    np.testing.assert_array_equal(ours, theirs)
    assert rows(tmp_path / "cut") == rows(tmp_path / "whole")


@pytest.mark.parametrize("layers", ["all", "embeddings"])
def test_random_candidates_and_train_examples(files: Path, tmp_path: Path, layers: str) -> None:
    keys = {
        "select__influence_on": "train",
        "select__influence_task_batch": "16",
        "select__influence_batch": "4",
    }
    more = {
        "select__influence_layers": layers,
        "select__influence_model": "tiny",
        "select__influence_share": "0.25",
    }
    fit(chained(files, "random", **keys, **more), tmp_path / "run", Tracker(), until="select")
    assert len(rows(tmp_path / "run")) == 25 and len(rows(tmp_path / "run", "candidates")) == 100
    scores = InfluenceScores(tmp_path / "run" / "influence")
    assert (scores.units, scores.tasks) == (25, 10)


def test_two_processes_score_what_one_scores(
    done: Path, files: Path, tmp_path: Path, commands: Commands
) -> None:
    given = quick(files, select__method="bm25,influence", **QUICK)
    commands.run(until("select", given, tmp_path / "two" / "run"), processes=2)
    assert json.loads((tmp_path / "two" / "run" / "manifest.json").read_text())["processes"] == 2
    ours, theirs = (
        InfluenceScores(place / "influence").of_tasks(0, 60)
        for place in (tmp_path / "two" / "run", done)
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-2, atol=1e-3 * np.abs(theirs).max())
    assert len(rows(tmp_path / "two" / "run")) == 20


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"select__method": "influence"}, "name the method that finds them: bm25,influence"),
        ({"select__method": "bm25,random"}, "only influence may follow"),
        ({"select__method": "bm25,influence,influence"}, "only influence may follow"),
        ({"select__method": "bm,influence"}, "did you mean 'bm25'"),
        ({"select__influence_layers": "2"}, "the layers 1 to 1"),
        ({"select__influence_layers": "first"}, "'first' is not a layer"),
        ({"select__influence_model": "tinny"}, "did you mean 'tiny'"),
        ({"select__influence_on": "test"}, "choose from dev, train"),
        ({"select__influence_share": "0"}, "at least 0.0001"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(
    files: Path, tmp_path: Path, changes: dict[str, str], message: str
) -> None:
    with pytest.raises(RecipeError, match=message):
        fit(chained(files, **changes), tmp_path / "run", Tracker(), until="select")
    assert not (tmp_path / "run" / "candidates").exists()


def test_no_dev_examples_are_said(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Splits, "named", lambda self: {"train": self.train, "test": self.test})
    with pytest.raises(DataError, match=r"labelled dev examples.*influence_on train"):
        fit(chained(files), tmp_path / "run", Tracker(), until="select")
