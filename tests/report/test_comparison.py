"""Runs are compared by what their folders hold; what keeps them from being compared is said."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from tasklm.cli.app import app
from tasklm.errors import RecipeError, RunError
from tasklm.evaluate.intervals import Difference
from tasklm.evaluate.scores import spread, spread_text, to_dict
from tasklm.recipe.toml import recipe_key
from tasklm.report.comparison import (
    FinishedRun,
    differences,
    leader,
    pairs_of,
    read_runs,
    recipe_differences,
    terminal_table,
)
from tasklm.report.comparison_page import render_comparison
from tests.report.checker import checked
from tests.report.parts import scores


def make_run(
    folder: Path, steps: int, test: Path, metric: str = "macro_f1", count: int = 80, **changes: Any
) -> Path:
    """The folder of a run with two seeds, as far as a comparison reads it."""
    found = dataclasses.replace(scores("TF-IDF"), metric=metric, seeds=2, **changes)
    for name in ("stage1", "stage2/seed-1", "stage2/seed-2"):
        (folder / name).mkdir(parents=True)
        points = [
            {"step": step, "rate": 0.1, "task": step + len(name), "dev": 0.5} for step in range(3)
        ]
        (folder / name / "curve.json").write_text(json.dumps(points), encoding="utf-8")
    (folder / "scores.json").write_text(
        json.dumps({**to_dict(found), "data": {"test": count}}), encoding="utf-8"
    )
    recipe = f'[data]\ntest = "{test}"\ncorpus = ["a", "b"]\n[train]\nsteps = {steps}\nrho1 = 3\n'
    (folder / "recipe.toml").write_text(
        recipe + ("batch = 8\n" if steps == 2 else ""), encoding="utf-8"
    )
    return folder


@pytest.fixture
def test_file(tmp_path: Path) -> Path:
    path = tmp_path / "test.jsonl"
    path.write_text("the test set", encoding="utf-8")
    return path


def test_the_page_shows_scores_curves_costs_and_recipes(tmp_path: Path, test_file: Path) -> None:
    runs = read_runs(
        [
            make_run(tmp_path / name, steps, test_file)
            for name, steps in (("first", 1), ("<second>", 2))
        ]
    )
    page = checked(render_comparison(runs))
    assert [name for name in page.values("id") if not name.endswith("-title")] == [
        "scores",
        "learning",
        "cost",
        "recipes",
    ]
    row = runs[0].scores.ours
    assert row is not None and page.shown.count(spread_text(row.test)) > 4
    assert (
        "on the same test set" in page.shown
        and "first and <second> tie" in page.shown
        and "BERT-base" in page.shown
    )
    assert page.shown.count(runs[0].scores.verdict) == 2
    assert (
        "<second>: 13 at step 2" not in page.shown and "<second>: 15 at step 2" in page.shown
    )  # mean over the seeds: 2 + 13


def test_recipes_are_compared_key_by_key(tmp_path: Path, test_file: Path) -> None:
    runs = read_runs(
        [
            make_run(tmp_path / name, steps, test_file)
            for name, steps in (("a", 1), ("b", 2), ("c", 1))
        ]
    )
    assert recipe_differences(runs) == [
        ("train.steps", ["1", "2", "1"]),
        ("train.batch", ["auto", "8", "auto"]),
    ]
    assert recipe_differences(runs[::2]) == []
    assert "the recipes are the same" in render_comparison(runs[::2])


def test_what_cannot_be_compared_is_said(tmp_path: Path, test_file: Path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text("another test set", encoding="utf-8")
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(test_file.read_bytes())
    first = make_run(tmp_path / "first", 1, test_file)
    folders = {
        "metric": make_run(tmp_path / "metric", 1, test_file, metric="accuracy"),
        "size": make_run(tmp_path / "size", 1, test_file, count=81),
        "content": make_run(tmp_path / "content", 1, other),
        "gone": make_run(tmp_path / "gone", 1, tmp_path / "gone.jsonl"),
        "copied": make_run(tmp_path / "copied", 1, copy),
    }
    said = {
        name: " ".join(differences(read_runs([first, folder]))) for name, folder in folders.items()
    }
    assert "different metrics: first: macro-F1, metric: accuracy" in said["metric"]
    assert "differ in size: first: 80 examples, size: 81 examples" in said["size"]
    assert "different files" in said["content"] and "Could not check" in said["gone"]
    assert said["copied"] == ""
    for name in ("metric", "size", "content"):
        page = checked(render_comparison(read_runs([first, folders[name]]))).shown
        assert page.count("The runs cannot be ranked: ") == 1 and said[name] in page
        assert not re.search("is ahead|tie:|on the same test set", page)
    gone = make_run(tmp_path / "gone too", 1, tmp_path / "gone.jsonl")
    (unchecked,) = differences(
        read_runs([folders["gone"], gone])
    )  # of the same path, and nobody knows what stood there
    assert "are the same: the file of gone, gone too" in unchecked
    page = checked(render_comparison(read_runs([folders["gone"], gone]))).shown
    assert (
        unchecked in page and "on the same test set" not in page and "gone and gone too tie" in page
    )


def test_dev_is_not_ranked_against_test(tmp_path: Path, test_file: Path) -> None:
    rows = [dataclasses.replace(row, test=None) for row in scores("TF-IDF").rows]
    first = make_run(tmp_path / "first", 1, test_file)
    on_dev = [make_run(tmp_path / name, 1, test_file, rows=rows) for name in ("a", "b")]
    mixed, alike = read_runs([first, on_dev[0]]), read_runs(on_dev)
    assert (
        differences(mixed)[0]
        == "The runs cannot be ranked: they are scored on different sets: first: test, a: dev."
    )
    assert "is ahead" not in checked(render_comparison(mixed)).shown
    assert "a and b tie" in checked(render_comparison(alike)).shown and [
        one[:30] for one in differences(alike)
    ] == ["No test set was scored in a, b"]


def test_passwords_of_servers_are_not_shown(tmp_path: Path, test_file: Path) -> None:
    folders = [make_run(tmp_path / name, 1, test_file) for name in ("first", "second")]
    for folder, server in zip(folders, ("one", "two"), strict=True):
        with (folder / "recipe.toml").open("a", encoding="utf-8") as file:
            file.write(f'[select]\nurl = "https://me:se@cret@{server}:9200/x"\n')
    out = tmp_path / "compared.html"
    shown = (
        CliRunner().invoke(app, ["report", *map(str, folders), "--out", str(out), "--json"]).stdout
    )
    for text in (shown, out.read_text(encoding="utf-8")):
        assert "https://one:9200/x" in text and "https://two:9200/x" in text and "cret" not in text


def test_the_curves_are_those_of_the_seeds_that_were_scored(
    tmp_path: Path, test_file: Path
) -> None:
    folder = make_run(tmp_path / "first", 1, test_file)
    for name in (
        "seed-3",
        "seed-3.partial",
    ):  # of an earlier recipe with more seeds, and of one that was interrupted
        shutil.copytree(folder / "stage2" / "seed-1", folder / "stage2" / name)
    (run,) = read_runs([folder])
    assert {record.get("seed") for record in run.curves if record["stage"] != "stage 1"} == {
        "1",
        "2",
    }


def test_scores_of_an_earlier_recipe_are_refused(tmp_path: Path, test_file: Path) -> None:
    folder = make_run(tmp_path / "first", 1, test_file)
    key = recipe_key(folder / "recipe.toml")
    shutil.rmtree(folder)
    make_run(folder, 1, test_file, recipe=key)
    with (folder / "recipe.toml").open("a", encoding="utf-8") as file:
        file.write("[hardware]\nthreads = 3\n")
    assert len(read_runs([folder])) == 1  # the machine does not matter
    shutil.rmtree(folder)
    make_run(folder, 2, test_file, recipe=key)
    with pytest.raises(
        RunError, match=r"come from an earlier recipe\. Finish the run: tasklm report"
    ):
        read_runs([folder])


def test_the_verb_writes_a_page_and_shows_a_table(tmp_path: Path, test_file: Path) -> None:
    folders = [
        str(make_run(tmp_path / name, steps, test_file))
        for name, steps in (("first", 1), ("second", 2))
    ]
    out = tmp_path / "compared.html"
    result = CliRunner().invoke(app, ["report", *folders, "--out", str(out)])
    assert result.exit_code == 0, result.output
    checked(out.read_text(encoding="utf-8"))
    assert "first" in result.stdout and str(out.name) in result.stdout.replace("\n", "")
    found = json.loads(
        CliRunner().invoke(app, ["report", *folders, "--out", str(out), "--json"]).stdout
    )
    assert (
        found["recipes"]["train.steps"] == {"first": "1", "second": "2"} and found["warnings"] == []
    )
    console = Console(width=200, file=io.StringIO(), record=True)
    runs = read_runs([Path(folder) for folder in folders])
    console.print(terminal_table(runs))
    title, head, _, *lines = [
        re.split(r" {2,}", line.strip()) for line in console.export_text().splitlines()
    ]
    row = runs[0].scores.ours
    assert row is not None and (title, head) == (
        ["macro-F1 × 100"],
        ["run", "dev", "test", "best other row"],
    )
    assert [line[:3] for line in lines] == [
        [name, spread_text(row.dev), spread_text(row.test)] for name in ("first", "second")
    ]
    assert all(re.fullmatch(r"\d\d\.\d random selection", line[3]) for line in lines)


def test_the_table_of_a_terminal_breaks_no_word(tmp_path: Path, test_file: Path) -> None:
    runs = read_runs([make_run(tmp_path / name, 1, test_file) for name in ("first", "second")])
    console = Console(width=60, file=io.StringIO(), record=True)
    console.print(terminal_table(runs))
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 60
    assert {"random", "selection", "first", "second", "macro-F1"} <= set(text.split())
    other = dataclasses.replace(
        runs[1], scores=dataclasses.replace(runs[1].scores, metric="accuracy")
    )
    console.print(terminal_table([runs[0], other]))
    text = console.export_text()
    assert "score × 100" in text
    assert {"first,", "macro-F1", "second,", "accuracy"} <= set(text.split())


def test_mistaken_folders_say_the_way_out(tmp_path: Path, test_file: Path) -> None:
    first = make_run(tmp_path / "first", 1, test_file)
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError, match=r"no scores\.json.*tasklm report"):
        read_runs([first, tmp_path / "empty"])
    with pytest.raises(RunError, match="compared with itself"):
        read_runs([first, first])
    assert isinstance(
        CliRunner().invoke(app, ["report", str(first), "--out", "x.html"]).exception, RecipeError
    )
    assert isinstance(
        CliRunner()
        .invoke(app, ["report", str(first), str(tmp_path), "--train.steps", "5"])
        .exception,
        RecipeError,
    )


def test_runs_of_the_same_name_are_told_apart_by_their_paths(
    tmp_path: Path, test_file: Path
) -> None:
    folders = [make_run(tmp_path / name / "run", 1, test_file) for name in ("a", "b")]
    assert [run.name for run in read_runs(folders)] == [str(folder) for folder in folders]


def with_scores(run: FinishedRun, values: list[float]) -> FinishedRun:
    """The run with other test scores of its seeds."""
    rows = [
        dataclasses.replace(row, test=spread(values)) if row.kind == "ours" else row
        for row in run.scores.rows
    ]
    return dataclasses.replace(run, scores=dataclasses.replace(run.scores, rows=rows))


def test_differences_are_corrected_for_their_number_and_tested_on_seeds(
    tmp_path: Path, test_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("best", "middle", "last")
    read = read_runs([make_run(tmp_path / name, 1, test_file) for name in names])
    values = ([0.9, 0.91, 0.92], [0.8, 0.81, 0.82], [0.7, 0.71])
    runs = [with_scores(run, list(own)) for run, own in zip(read, values, strict=True)]
    p_values = {"middle": 0.03, "last": 0.01}

    def difference(_: Path, other: Path, __: Any) -> Difference:
        return Difference(0.1, 0.05, 0.15, p_values[other.name], 1000)

    monkeypatch.setattr("tasklm.report.comparison.difference_of", difference)
    pairs = pairs_of(runs)
    assert [pair.corrected for pair in pairs] == pytest.approx([0.03, 0.02])
    assert pairs[0].seeds == pytest.approx(0.1) and pairs[1].seeds is None  # two seeds are too few
    assert "Corrected for 2 comparisons (Holm): p = 0.03." in leader(runs, pairs)
    shown = checked(render_comparison(runs, pairs)).shown
    assert "p, Holm" in shown and "corrected for 2 comparisons" in shown
