"""The verbs on small data."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tasklm.cli.app import app
from tests.conftest import write_jsonl
from tests.end_to_end.command_line import run_folder, runner, words
from tests.end_to_end.conftest import options


def test_each_step_alone_continues_the_run(files: Path, tmp_path: Path) -> None:
    given = options(files)
    recipe = tmp_path / "recipe.toml"
    train, corpus = given.pop("data.train"), given.pop("data.corpus")
    assert (
        runner.invoke(
            app, ["init", train, "--corpus", corpus, "--to", str(recipe), *words(given)]
        ).exit_code
        == 0
    )
    text = recipe.read_text(encoding="utf-8")
    assert (
        'text_column = "text"' in text
        and 'label_column = "label"' in text
        and "# found: 160 examples, 2 classes" in text
    )
    out = tmp_path / "run"
    out.mkdir()
    (out / "recipe.toml").write_text(text, encoding="utf-8")
    made = {
        "select": "selected/selected.parquet",
        "tokenize": "tokens/tokenizer.json",
        "train": "stage1/model.safetensors",
        "finetune": "stage2/seed-2/best.safetensors",
        "evaluate": "scores.json",
        "report": "report.html",
    }
    for step, artefact in made.items():
        assert not (out / artefact).exists()
        result = runner.invoke(app, [step, str(out)])
        assert result.exit_code == 0, result.output
        assert (out / artefact).exists()
    again = runner.invoke(app, ["run", str(out / "recipe.toml"), "--out", str(out), "--json"])
    assert json.loads(again.stdout)["metric"] in ("accuracy", "macro_f1")


def test_predict_from_argument_file_and_stdin(files: Path, tmp_path: Path) -> None:
    given = options(files)
    out = tmp_path / "run"
    fitted = runner.invoke(app, ["fit", given.pop("data.train"), "--out", str(out), *words(given)])
    assert fitted.exit_code == 0, fitted.output
    model = str(out / "model")
    text = "the cat likes cold water number 5 ."
    one = json.loads(runner.invoke(app, ["predict", model, text]).stdout)
    assert one["label"] in ("yes", "no") and sum(one["probabilities"].values()) == pytest.approx(
        1.0
    )
    piped = json.loads(runner.invoke(app, ["predict", model], input=text + "\n\n").stdout)
    assert piped == one
    table = write_jsonl(tmp_path / "new.jsonl", [{"text": text}, {"text": "music ."}])
    lines = runner.invoke(app, ["predict", model, str(table)]).stdout.splitlines()
    first = json.loads(lines[0])  # beside a second text: sums may be rounded in another order
    assert len(lines) == 2 and first["probabilities"] == pytest.approx(
        one["probabilities"], abs=1e-5
    )
    assert (first["text"], first["label"]) == (one["text"], one["label"])
    plain = tmp_path / "new.txt"
    plain.write_text(text + "\n", encoding="utf-8")
    assert json.loads(runner.invoke(app, ["predict", model, str(plain)]).stdout) == one


def test_check_exits_with_1_on_errors_and_0_without(files: Path, tmp_path: Path) -> None:
    train, test = str(files / "train.jsonl"), str(files / "test.jsonl")
    good = runner.invoke(
        app,
        [
            "check",
            train,
            "--test",
            test,
            "--corpus",
            str(files / "corpus.jsonl"),
            "--out",
            str(tmp_path / "a"),
            "--json",
        ],
    )
    assert good.exit_code == 0, good.output
    assert {finding["level"] for finding in json.loads(good.stdout)} <= {"ok", "warning"}
    bad = runner.invoke(app, ["check", train, "--test", train, "--out", str(tmp_path / "b")])
    assert bad.exit_code == 1 and "two splits" in bad.stdout


def test_a_line_of_10_mb_works(files: Path, tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text(
        (files / "corpus.jsonl").read_text() + json.dumps({"text": "cold water " * 900_000}) + "\n",
        encoding="utf-8",
    )
    given = options(files, data__corpus=str(path))
    result = runner.invoke(app, ["select", str(run_folder(tmp_path, given))])
    assert result.exit_code == 0, result.output


def test_a_corpus_smaller_than_k_is_used_whole(files: Path, tmp_path: Path) -> None:
    small = write_jsonl(
        tmp_path / "small.jsonl",
        [{"text": f"the cat sees the long road again and again {i}"} for i in range(5)],
    )
    given = options(files, data__corpus=str(small), select__k="1000")
    result = runner.invoke(app, ["select", str(run_folder(tmp_path, given))])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    "verb",
    [
        "fit",
        "run",
        "init",
        "check",
        "select",
        "tokenize",
        "train",
        "finetune",
        "evaluate",
        "report",
        "predict",
        "demo",
    ],
)
def test_every_verb_has_help_with_an_example(verb: str) -> None:
    result = runner.invoke(app, [verb, "--help"])
    assert result.exit_code == 0 and f"Example: tasklm {verb}" in result.stdout


def test_search_shows_what_counted(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    write_jsonl(
        corpus,
        [
            {"text": text}
            for text in ("the cat sleeps", "a dog barks at the moon", "nothing of note")
        ],
    )
    cache = ["--cache", str(tmp_path / "cache")]
    hits = json.loads(
        runner.invoke(app, ["search", str(corpus), "moon dog moon", "--json", *cache]).stdout
    )
    assert [hit["text"] for hit in hits] == ["a dog barks at the moon"]
    assert [hits[0]["text"][start:end] for start, end in hits[0]["marked"]] == ["dog", "moon"]
    assert [(term["term"], term["asked"], term["found"]) for term in hits[0]["terms"]] == [
        ("moon", 2, 1),
        ("dog", 1, 1),
    ]
    assert sum(term["adds"] for term in hits[0]["terms"]) == pytest.approx(
        hits[0]["score"], rel=1e-5
    )
    assert "a dog barks" in runner.invoke(app, ["search", str(corpus), "moon", *cache]).stdout
    assert "No passage" in runner.invoke(app, ["search", str(corpus), "zebra", *cache]).stdout


def test_explain_names_the_examples_that_pulled_a_passage_in(files: Path, tmp_path: Path) -> None:
    given, out = options(files, select__passages="30"), tmp_path / "run"
    train, corpus = given.pop("data.train"), given.pop("data.corpus")
    recipe = tmp_path / "recipe.toml"
    runner.invoke(app, ["init", train, "--corpus", corpus, "--to", str(recipe), *words(given)])
    out.mkdir()
    (out / "recipe.toml").write_text(recipe.read_text(encoding="utf-8"), encoding="utf-8")
    assert runner.invoke(app, ["select", str(out)]).exit_code == 0
    row = pq.read_table(out / "selected" / "selected.parquet").to_pylist()[0]
    reasons = json.loads(
        runner.invoke(app, ["select", str(out), "--explain", row["id"], "--json"]).stdout
    )
    texts = [
        json.loads(line)["text"] for line in Path(train).read_text(encoding="utf-8").splitlines()
    ]
    assert reasons["hit"]["text"] == row["text"] and reasons["place"] == 0
    assert [texts.index(asker["text"]) for asker in reasons["queries"]] == row["matched_queries"][
        :5
    ]
    for asker in reasons["queries"]:
        assert sum(term["adds"] for term in asker["terms"]) == pytest.approx(
            asker["score"], rel=1e-5
        )
    shown = runner.invoke(app, ["select", str(out), "--explain", row["id"]]).stdout
    assert "position 1 in the selection" in shown and "rank 1, score" in shown
    wrong = runner.invoke(app, ["select", str(out), "--explain", "nowhere"])
    assert "the passage nowhere is not in the selection" in str(wrong.exception)


def test_another_number_of_passages_is_chosen_without_scoring_again(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, out = options(files, select__passages="30"), tmp_path / "run"
    train, corpus = given.pop("data.train"), given.pop("data.corpus")
    recipe = tmp_path / "recipe.toml"
    runner.invoke(app, ["init", train, "--corpus", corpus, "--to", str(recipe), *words(given)])
    out.mkdir()
    (out / "recipe.toml").write_text(recipe.read_text(encoding="utf-8"), encoding="utf-8")
    assert runner.invoke(app, ["select", str(out)]).exit_code == 0
    few = pq.read_table(out / "selected" / "selected.parquet")["id"].to_pylist()
    monkeypatch.setattr("tasklm.select.bm25.search", None)  # whoever scores now fails
    again = runner.invoke(
        app, ["select", str(out), "--select.passages", "45", "--select.near_duplicates", "0.9"]
    )
    assert again.exit_code == 0, again.exception
    many = pq.read_table(out / "selected" / "selected.parquet")["id"].to_pylist()
    assert len(few) == 30 and len(many) == 45 and many[:30] == few
    assert runner.invoke(app, ["select", str(out), "--select.b", "0.5"]).exit_code == 1


def test_another_objective_by_one_option(files: Path, tmp_path: Path) -> None:
    given = options(files, **{"train.objective": "electra"})
    done = runner.invoke(
        app, ["fit", given.pop("data.train"), "--out", str(tmp_path / "run"), *words(given)]
    )
    assert done.exit_code == 0, done.output
    curve = json.loads(
        next((tmp_path / "run").rglob("stage1/curve.json")).read_text(encoding="utf-8")
    )
    assert {"generator", "discriminator", "task", "discriminator on task"} <= {
        name for point in curve for name in point
    }
