from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tasklm.corpus.words import words
from tasklm.evaluate.scores import Scores
from tasklm.pipeline import planning, stage_planning
from tasklm.pipeline.flow import check, fit
from tasklm.recipe.toml import load
from tasklm.serve.predictor import Predictor
from tasklm.tracking import SILENT, Tracker
from tests.conftest import labelled, write_jsonl
from tests.end_to_end.conftest import options


@pytest.fixture(scope="module")
def done(files: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Scores]:
    folder = tmp_path_factory.mktemp("runs") / "run"
    recipe = load(
        None,
        options(
            files, evaluate__compare="task-only,random", train__steps="100", finetune__epochs="6"
        ),
    )
    scores = fit(recipe, folder, Tracker())
    assert scores is not None
    return folder, scores


def test_the_model_learns_and_every_row_is_there(done: tuple[Path, Scores]) -> None:
    _, scores = done
    names = [row.name for row in scores.rows]
    assert names == [
        "majority",
        "TF-IDF + linear",
        "task data only",
        "random selection",
        "BM25 selection (TLM)",
    ]
    tests = {row.name: row.test.mean for row in scores.rows if row.test is not None}
    assert tests["BM25 selection (TLM)"] > tests["majority"] + 0.2
    ours = scores.ours
    assert ours is not None and ours.test is not None and ours.test.low is not None
    assert ours.test.low <= ours.test.mean <= ours.test.high and len(ours.test.values) == 2
    assert ours.flops_exact > 0 and ours.flops_6nd > 0 and ours.selected_passages > 0
    only = next(row for row in scores.rows if row.name == "task data only")
    assert only.selected_passages == 0


def test_the_run_folder_holds_what_was_promised(done: tuple[Path, Scores]) -> None:
    folder, scores = done
    for name in (
        "recipe.toml",
        "manifest.json",
        "events.jsonl",
        "scores.json",
        "report.html",
        "model",
        "selected",
        "tokens",
        "stage1",
    ):
        assert (folder / name).exists(), name
    assert not list(folder.rglob("*.partial")) and not list(folder.rglob("*.tmp"))
    stored = json.loads((folder / "scores.json").read_text(encoding="utf-8"))
    assert stored["verdict"] == scores.verdict
    table = pq.read_table(folder / "selected" / "selected.parquet")
    assert {"id", "text", "source", "score", "rank", "matched_queries"} <= set(table.column_names)
    assert "BM25 selection" in (folder / "report.html").read_text(encoding="utf-8")


def test_dev_and_test_never_reach_the_selected_text(done: tuple[Path, Scores], files: Path) -> None:
    folder, _ = done
    texts = [
        words(text)
        for text in pq.read_table(folder / "selected" / "selected.parquet")
        .column("text")
        .to_pylist()
    ]
    selected = {tuple(text[i : i + 5]) for text in texts for i in range(len(text))}
    for name in ("dev", "test"):
        for line in (files / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
            held = words(json.loads(line)["text"])
            starts = [i for i in range(len(held) - 4) if tuple(held[i : i + 5]) in selected]
            if len(starts) == len(held) - 4:  # every run of five is there: is the whole text?
                joined = " ".join(held)
                assert not any(f" {joined} " in f" {' '.join(text)} " for text in texts)


def test_the_saved_model_predicts_what_was_scored(done: tuple[Path, Scores]) -> None:
    folder, scores = done
    predictor = Predictor(folder / "model")
    rows = labelled(80, 3)
    right = np.mean(
        [
            answer["label"] == row["label"]
            for answer, row in zip(
                predictor.answers([str(r["text"]) for r in rows]), rows, strict=True
            )
        ]
    )
    assert scores.ours is not None and scores.ours.test is not None
    best = json.loads((folder / "model" / "config.json").read_text())["about"]["seed"]
    assert right == pytest.approx(_accuracy(folder, best), abs=1e-9)


def _accuracy(folder: Path, seed: int) -> float:
    answers = json.loads((folder / "predictions" / f"test-{seed}.json").read_text())
    return float(
        np.mean(
            [
                answer["label"] == row["label"]
                for answer, row in zip(answers, labelled(80, 3), strict=True)
            ]
        )
    )


def test_running_again_skips_everything(done: tuple[Path, Scores], files: Path) -> None:
    folder, scores = done
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("model.safetensors")}
    recipe = load(
        None,
        options(
            files, evaluate__compare="task-only,random", train__steps="100", finetune__epochs="6"
        ),
    )
    again = fit(recipe, folder, SILENT)
    assert again is not None and again.verdict == scores.verdict
    assert before == {path: path.stat().st_mtime_ns for path in folder.rglob("model.safetensors")}


def test_same_seed_twice_gives_identical_predictions(files: Path, tmp_path: Path) -> None:
    recipe = load(None, options(files))
    for name in ("a", "b"):
        fit(recipe, tmp_path / name, Tracker(), until="evaluate")
    first, second = (
        (tmp_path / name / "predictions" / "test-1.json").read_text() for name in ("a", "b")
    )
    assert first == second
    recipe = load(None, options(files, train__seed="2"))
    fit(recipe, tmp_path / "c", Tracker(), until="evaluate")
    assert first != (tmp_path / "c" / "predictions" / "test-1.json").read_text()


def test_another_number_of_seeds_redoes_only_what_is_new(files: Path, tmp_path: Path) -> None:
    fit(load(None, options(files)), tmp_path / "run", Tracker(), until="finetune")
    stage1 = (tmp_path / "run" / "stage1" / "model.safetensors").stat().st_mtime_ns
    first = (tmp_path / "run" / "stage2" / "seed-1" / "best.safetensors").stat().st_mtime_ns
    fit(
        load(None, options(files, finetune__seeds="3")),
        tmp_path / "run",
        Tracker(),
        until="finetune",
    )
    assert (tmp_path / "run" / "stage1" / "model.safetensors").stat().st_mtime_ns == stage1
    assert (tmp_path / "run" / "stage2" / "seed-1" / "best.safetensors").stat().st_mtime_ns == first
    assert (tmp_path / "run" / "stage2" / "seed-3").exists()


@pytest.mark.parametrize("budget", [{"budget__minutes": "0.1"}, {"budget__flops": "1e9"}])
def test_a_budget_decides_everything(
    files: Path, tmp_path: Path, budget: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # how fast this machine is does not matter here
    monkeypatch.setattr(planning, "TRY_SECONDS", 0.05)
    for name in ("STAGE1_SECONDS", "STAGE2_SECONDS"):
        monkeypatch.setattr(stage_planning, name, 0.05)
    monkeypatch.setattr(stage_planning, "time_left", lambda *given: 5.0)
    chosen = {
        key: value
        for key, value in options(files, **budget).items()
        if key not in ("train.steps", "train.batch", "model.size")
    }
    scores = fit(load(None, {**chosen, "finetune.epochs": "1"}), tmp_path / "run", Tracker())
    assert scores is not None and scores.ours is not None
    decided = json.loads((tmp_path / "run" / "stage1" / "plan.json").read_text())["stage1"]
    assert decided["steps"] >= 1 and decided["rho1"] >= 1
    if "budget__flops" in budget:
        spent = json.loads((tmp_path / "run" / "stage1" / "summary.json").read_text())["flops"]
        assert 0.5 * 1e9 < spent < 1.5 * 1e9


def test_check_finds_what_fit_refuses(files: Path, tmp_path: Path) -> None:
    leaky = tmp_path / "leaky.jsonl"
    leaky.write_text(
        (files / "train.jsonl").read_text().splitlines()[0]
        + "\n"
        + (files / "test.jsonl").read_text()
    )
    recipe = load(None, options(files, data__test=str(leaky)))
    findings = check(recipe, tmp_path / "check", Tracker())
    errors = [finding.message for finding in findings if finding.level == "error"]
    assert len(errors) == 1 and "1 of the 81 test examples" in errors[0]
    with pytest.raises(Exception, match="1 of the 81 test examples"):
        fit(recipe, tmp_path / "run", Tracker())


def test_a_comparison_takes_a_vocabulary_smaller_than_a_recipe_may_ask_for(tmp_path: Path) -> None:
    """What little text there is has fewer types."""
    rows: list[dict[str, object]] = [
        {"text": f"{a} {b}", "label": a}
        for a in ("ab", "ba")
        for b in ("aa", "bb", "aab", "bba", "abab")
    ]
    for name in ("train", "dev", "test"):
        write_jsonl(
            tmp_path / f"{name}.jsonl", [{**row, "text": f"{row['text']} {name}"} for row in rows]
        )
    write_jsonl(
        tmp_path / "corpus.jsonl", [{"text": f"aa bb ab {'b' * number}"} for number in range(1, 9)]
    )
    few = options(tmp_path, evaluate__compare="task-only", train__steps="2", finetune__epochs="1")
    scores = fit(load(None, {**few, "select.passages": "4"}), tmp_path / "run", SILENT)
    assert scores is not None and "task data only" in [row.name for row in scores.rows]
    assert (
        len(
            json.loads((tmp_path / "run" / "model" / "tokenizer.json").read_text(encoding="utf-8"))[
                "model"
            ]["vocab"]
        )
        < 300
    )
