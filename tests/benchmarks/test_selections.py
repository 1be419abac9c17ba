"""The benchmark of ways of selecting: small ablations, what they share and skip, one that fails."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasklm.errors import RecipeError, RunError
from tasklm.pipeline import selection, steps
from tasklm.recipe.toml import load
from tests.conftest import labelled, sentences, write_jsonl

TINY = [
    "--passages",
    "50",
    "--flops",
    "4e8",
    "--layers",
    "1",
    "--width",
    "32",
    "--seeds",
    "2",
    "--threads",
    "1",
]
SETTINGS = [
    "finetune.epochs=1",
    "tokens.length=32",
    "train.batch=8",
    "train.rho1=3",
    "select.k=20",
    "select.near_duplicates=0",
    "data.leaks=drop",
    "evaluate.bootstrap=100",
    "select.influence_steps=3",
]
Main = Callable[..., dict[str, Any]]


@pytest.fixture
def work_done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list of what the runs compute: rankings, scoring models, scores, and stages 1."""
    done: list[str] = []

    def counted(place: Any, name: str, title: str) -> None:
        whole = getattr(place, name)

        def counts(*given: Any, **how: Any) -> Any:
            done.append(title)
            return whole(*given, **how)

        monkeypatch.setattr(place, name, counts)

    counted(selection, "fitted", "ranking")
    counted(selection, "score_blocks", "scores")
    whole = steps.run_stage1

    def run_stage1(folder: Path, *given: Any) -> None:
        done.append(folder.name.removesuffix(".partial"))
        whole(folder, *given)

    monkeypatch.setattr(steps, "run_stage1", run_stage1)
    return done


@pytest.fixture
def main(module: Any, run_verb_here: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Main:
    """The command on a made task, with its runs in this process; it returns the record."""
    program = module("selections")

    monkeypatch.setattr(program, "run_verb", run_verb_here)
    words = []
    for seed, (split, count) in enumerate({"train": 60, "dev": 20, "test": 20}.items()):
        words += [
            f"--{split}",
            str(write_jsonl(tmp_path / f"{split}.jsonl", labelled(count, seed))),
        ]
    corpus = write_jsonl(
        tmp_path / "corpus.jsonl",
        [{"text": " ".join(sentences(8, 100 + seed))} for seed in range(120)],
    )
    words += [
        "--corpus",
        str(corpus),
        *TINY,
        *(word for setting in SETTINGS for word in ("--set", setting)),
    ]

    def run(vary: str, *more: str, work: str = "work") -> dict[str, Any]:
        monkeypatch.setattr(
            sys,
            "argv",
            [
                "selections.py",
                "--vary",
                vary,
                "--name",
                "Made",
                "--work",
                str(tmp_path / work),
                *words,
                *more,
            ],
        )
        program.main()
        found: dict[str, Any] = read(tmp_path / work / f"selections-{vary}-made.json")
        return found

    return run


def read(path: Path) -> Any:
    """The values of a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def folders_of(work: Path, method: str) -> list[Path]:
    return sorted(
        path for path in work.iterdir() if path.name.startswith(f"{method}-") and path.is_dir()
    )


def ids(folder: Path, name: str = "selected") -> list[str]:
    found: list[str] = pq.read_table(folder / name / "selected.parquet")["id"].to_pylist()
    return found


def test_methods_keep_as_many_passages_and_spend_the_same_flops(
    main: Main, work_done: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = main("method", "--stage1-seeds", "2")
    page = capsys.readouterr().out
    assert (
        list(found["rows"]) == ["random", "BM25", "BM25 + influence"] and found["candidates"] == 50
    )
    runs = {
        (name, seed): run
        for name, row in found["rows"].items()
        for seed, run in row["runs"].items()
    }
    assert len(runs) == 6 and {run["selection"]["passages"] for run in runs.values()} == {10}
    assert all(run["stage1"]["flops"] == pytest.approx(4e8, rel=0.05) for run in runs.values())
    # candidates are found once, and a scoring model is trained and asked once for each seed; bm25
    # goes on from the ranking
    assert sorted(work_done) == sorted(
        ["ranking"] * 5 + ["scoring-model", "scores"] * 2 + ["stage1"] * 6
    )
    (bm25, other), influence, random = (
        folders_of(tmp_path / "work", name) for name in ("bm25", "influence", "random")
    )
    assert ids(bm25) == ids(other) == ids(influence[0], "candidates")[:10]
    assert all(set(ids(one)) <= set(ids(one, "candidates")) for one in influence)
    assert ids(random[0]) != ids(random[1])  # a draw for each seed
    for folder in influence:
        seed = load(folder / "recipe.toml").train.seed
        run, parts = runs["BM25 + influence", str(seed)], ("scoring-model", "influence", "stage1")
        flops = {part: read(folder / part / "summary.json")["flops"] for part in parts}
        assert (
            run["selection"]["flops"]
            == flops["scoring-model"] + flops["influence"]
            > flops["influence"]
            > 0
        )
        tuned = [
            read(folder / "stage2" / f"seed-{number}" / "summary.json")["flops"]
            for number in (1, 2)
        ]
        (ours,) = read(folder / "scores.json")["rows"]
        assert ours["flops_exact"] == pytest.approx(
            sum(flops.values()) + sum(tuned) / 2
        )  # the score table has all of it
        assert run["dev"]["values"] == [
            read(folder / "stage2" / f"seed-{number}" / "summary.json")["dev"] for number in (1, 2)
        ]
    assert runs["BM25", "1"]["selection"]["flops"] == runs["random", "1"]["selection"]["flops"] == 0
    assert (
        re.search(r"^\| BM25 \+ influence \| .* ± .* \| 10 \|", page, re.MULTILINE)
        and "Seeds of stage 1: 2; of fine-tuning, each: 2." in page
    )
    ElementTree.fromstring(
        (tmp_path / "work" / "selections-method-made.svg").read_text(encoding="utf-8")
    )
    assert str(tmp_path) not in json.dumps(found)

    before = list(work_done)
    assert (
        main("method", "--stage1-seeds", "2") == found and work_done == before
    )  # what is done is skipped
    earlier = str(tmp_path / "work" / "selections-method-made.json")
    again = main("method", "--stage1-seeds", "2", "--merge", earlier, work="elsewhere")
    assert again == found and work_done[len(before) :] == [
        "ranking",
        "scoring-model",
        "scores",
    ]  # to compare the candidates
    with pytest.raises(RunError, match="differ in settings"):
        main("method", "--set", "train.rho1=4", "--merge", earlier)


def test_another_share_is_free_and_other_scores_use_the_model_that_is_there(
    main: Main, work_done: list[str]
) -> None:
    found = main("share", "--values", "0.1,0.4")
    assert {
        name: run["selection"]["passages"]
        for name, row in found["rows"].items()
        for run in row["runs"].values()
    } == {
        "10 %": 5,
        "40 %": 20,
    }
    assert sorted(work_done) == ["ranking", "scores", "scoring-model", "stage1", "stage1"]
    work_done.clear()
    found = main("batch", "--values", "1/1,4/16")
    assert [list(row["keys"].values()) for row in found["rows"].values()] == [[1, 1], [4, 16]]
    assert {
        run["selection"]["passages"]
        for row in found["rows"].values()
        for run in row["runs"].values()
    } == {10}
    assert sorted(work_done) == [
        "scores",
        "stage1",
        "stage1",
    ]  # 1/1 is what the shares were chosen by


def test_one_that_fails_leaves_the_others(main: Main, capsys: pytest.CaptureFixture[str]) -> None:
    found = main("layers", "--values", "last,2,middle")  # the model has one layer
    assert (
        "failed" in found["rows"]["2"]["runs"]["1"] and "dev" in found["rows"]["last"]["runs"]["1"]
    )
    assert (
        found["rows"]["middle (1 of 1)"]["runs"]["1"]["dev"]
        == found["rows"]["last"]["runs"]["1"]["dev"]
    )
    page = capsys.readouterr().out
    assert "| 2 | no result (candidates were not scored: " in page and "the layers 1 to 1" in page
    with pytest.raises(RecipeError, match=r"train\.seed: this benchmark decides it"):
        main("layers", "--set", "train.seed=3")


def test_an_artefact_is_there_when_all_of_it_is_linked(
    module: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folders = module("selection_runs.folders")
    recipe, giver, folder = load(None, {}), tmp_path / "giver", tmp_path / "run"
    (giver / "candidates").mkdir(parents=True)
    for name in ("a", "artefact.json", "b"):
        (giver / "candidates" / name).write_text('{"key": "k", "seconds": 1.0}', encoding="utf-8")
    link = folders.os.link

    def dies(source: str, target: str, **how: Any) -> None:
        if Path(source).name == "b":
            raise KeyboardInterrupt
        link(source, target, **how)

    with monkeypatch.context() as patch:
        patch.setattr(folders.os, "link", dies)
        with pytest.raises(KeyboardInterrupt):
            folders.start_folder(folder, recipe, giver, ("candidates",))
    assert not (folder / "candidates").exists()
    folders.start_folder(folder, recipe, giver, ("candidates",))
    assert sorted(path.name for path in (folder / "candidates").iterdir()) == [
        "a",
        "artefact.json",
        "b",
    ]


def test_words_of_the_command_line_are_keys_of_the_recipe(module: Any) -> None:
    settings_for = module("selection_runs.settings").settings_for
    rows = [
        *settings_for("layers", ["last", "middle", "3+4"], 12),
        *settings_for("steps", ["2000"], 1),
        *settings_for("share", ["0.25"], 1),
    ]
    assert [(row.name, row.keys) for row in rows] == [
        ("last", {"influence_layers": "last"}),
        ("middle (6 of 12)", {"influence_layers": "6"}),
        ("3+4", {"influence_layers": "3,4"}),
        ("2,000", {"influence_steps": 2000}),
        ("25 %", {"influence_share": 0.25}),
    ]
    for vary, wrong in (("batch", "4"), ("steps", "many"), ("layers", "first"), ("share", "half")):
        with pytest.raises(RunError, match=f"for --vary {vary} they are such as"):
            settings_for(vary, [wrong], 4)
    with pytest.raises(RunError, match="choose from random, bm25, influence"):
        settings_for("method", ["bm25", "best"], 4)


def test_candidates_are_told_by_their_texts_and_not_by_their_places_in_the_corpus(
    module: Any, tmp_path: Path
) -> None:
    content = module("selection_runs.folders").content_of
    for name, rows in {
        "one": {"a": 1, "b": 2},
        "two": {"b": 1, "a": 2},
        "three": {"a": 1, "c": 2},
    }.items():
        pq.write_table(pa.table({"id": list(rows), "number": list(rows.values())}), tmp_path / name)
    assert content(tmp_path / "one") == content(tmp_path / "two") != content(tmp_path / "three")
