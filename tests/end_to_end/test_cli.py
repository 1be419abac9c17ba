from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from tasklm.cli.app import app
from tasklm.cli.options import overrides_of
from tasklm.errors import RecipeError, TaskLMError
from tests.conftest import labelled, write_jsonl
from tests.end_to_end.conftest import options

runner = CliRunner()


def words(given: dict[str, str]) -> list[str]:
    return [word for key, value in given.items() for word in (f"--{key}", value)]


def fit_error(files: Path, out: Path, **changes: str) -> str:
    """Runs `fit` with something wrong and returns the message that the person would read."""
    given = options(files, **changes)
    result = runner.invoke(app, ["fit", given.pop("data.train"), "--out", str(out), *words(given)])
    assert isinstance(result.exception, TaskLMError), result.output
    return str(result.exception)


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


def test_words_that_are_no_options_are_refused() -> None:
    with pytest.raises(RecipeError, match="unexpected argument 'stray'"):
        overrides_of(["stray"])
    with pytest.raises(RecipeError, match=r"--train\.steps needs a value"):
        overrides_of(["--train.steps"])
    assert overrides_of(["--train.rho1=3", "--data.text-column", "a b"]) == {
        "train.rho1": "3",
        "data.text_column": "a b",
    }


def test_bad_inputs_name_file_and_remedy(files: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.jsonl"
    cases: list[tuple[bytes | None, list[str]]] = [
        (None, ["broken.jsonl"]),
        (b"", ["broken.jsonl", "empty"]),
        (b'{"text": "a b"}\n{"text": "c"}\n', ["broken.jsonl", "label"]),
        (b'{"text": "a", "label": "x"}\n{"text": "b", "label": "x"}\n', ["broken.jsonl", "x"]),
        (
            b'{"text": "a", "label": "x"}\n{"text": "b", "label": null}\n',
            ["broken.jsonl, line 2", "label"],
        ),
        (
            b'{"text": "a", "label": NaN}\n{"text": "b", "label": "x"}\n',
            ["broken.jsonl, line 1", "label"],
        ),
        (
            b'{"text": "a", "label": "x"}\n{"text": "caf\xe9", "label": "y"}\n',
            ["broken.jsonl, line 2", "UTF-8"],
        ),
        (b'{"text": "a", "label": "x"}\n{"text": "b",\n', ["broken.jsonl, line 2", "JSON"]),
    ]
    for number, (content, told) in enumerate(cases):
        broken.unlink(missing_ok=True)
        if content is not None:
            broken.write_bytes(content)
        message = fit_error(files, tmp_path / f"run{number}", data__train=str(broken))
        for word in told:
            assert word in message, (number, message)


def test_a_truncated_gz_is_named(files: Path, tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl.gz"
    path.write_bytes(gzip.compress((files / "train.jsonl").read_bytes())[:-200])
    assert "train.jsonl.gz" in fit_error(files, tmp_path / "run", data__train=str(path))


def test_a_label_only_in_test_is_named_with_its_line(files: Path, tmp_path: Path) -> None:
    path = write_jsonl(
        tmp_path / "test.jsonl", [*labelled(3, 9), {"text": "new", "label": "perhaps"}]
    )
    message = fit_error(files, tmp_path / "run", data__test=str(path))
    assert "test.jsonl, line 4" in message and "perhaps" in message


def test_a_missing_column_lists_those_there_are(files: Path, tmp_path: Path) -> None:
    message = fit_error(files, tmp_path / "run", data__text_column="body")
    assert "body" in message and "text" in message and "label" in message


def test_a_line_of_10_mb_works(files: Path, tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text(
        (files / "corpus.jsonl").read_text() + json.dumps({"text": "cold water " * 900_000}) + "\n",
        encoding="utf-8",
    )
    given = options(files, data__corpus=str(path))
    result = runner.invoke(app, ["select", str(_run_folder(tmp_path, given))])
    assert result.exit_code == 0, result.output


def _run_folder(tmp_path: Path, given: dict[str, str]) -> Path:
    from tasklm.recipe.toml import dump, load

    out = tmp_path / "run"
    out.mkdir()
    (out / "recipe.toml").write_text(dump(load(None, given)), encoding="utf-8")
    return out


def test_a_corpus_smaller_than_k_is_used_whole(files: Path, tmp_path: Path) -> None:
    small = write_jsonl(
        tmp_path / "small.jsonl",
        [{"text": f"the cat sees the long road again and again {i}"} for i in range(5)],
    )
    given = options(files, data__corpus=str(small), select__k="1000")
    result = runner.invoke(app, ["select", str(_run_folder(tmp_path, given))])
    assert result.exit_code == 0, result.output


def test_nothing_left_after_decontamination_is_refused(files: Path, tmp_path: Path) -> None:
    rows = [
        json.loads(line) for line in (files / "test.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    path = write_jsonl(tmp_path / "copy.jsonl", [{"text": " ".join(row["text"] for row in rows)}])
    assert "corpus" in fit_error(files, tmp_path / "run", data__corpus=str(path)).lower()


def test_no_common_word_is_told(files: Path, tmp_path: Path) -> None:
    path = write_jsonl(
        tmp_path / "other.jsonl", [{"text": "совсем другой язык без общих слов"}] * 2
    )
    assert "no passage shares a word with the training examples" in fit_error(
        files, tmp_path / "run", data__corpus=str(path)
    )


def test_an_output_that_is_a_file_is_told(files: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert "--out" in fit_error(files, tmp_path / "file")
    assert "--out" in fit_error(files, tmp_path / "file" / "run")


def test_a_folder_of_other_files_is_left_alone(files: Path, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.txt").write_text("1", encoding="utf-8")
    assert "contains files but no run. Choose a new or an empty folder with --out" in fit_error(
        files, tmp_path
    )
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == [
        "model",
        "model/mine.txt",
    ]


def test_a_recipe_with_changes_by_hand_is_left_alone(files: Path, tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text("# mine", encoding="utf-8")
    result = runner.invoke(
        app, ["init", str(files / "train.jsonl"), "--to", str(tmp_path / "recipe.toml")]
    )
    assert (
        isinstance(result.exception, TaskLMError)
        and "already exists" in str(result.exception)
        and "--to" in str(result.exception)
    )
    result = runner.invoke(app, ["check", str(files / "train.jsonl"), "--out", str(tmp_path)])
    assert isinstance(result.exception, TaskLMError) and "contains files but no run" in str(
        result.exception
    )
    assert (tmp_path / "recipe.toml").read_text(encoding="utf-8") == "# mine"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")  # noqa: PTH110
def test_a_full_disk_is_told_from_a_real_write(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tasklm.tokens.shards as shards

    def full(folder: Path, *_: object) -> None:
        with open("/dev/full", "wb", buffering=0) as file:  # noqa: PTH123
            file.write(b"x")

    monkeypatch.setattr("tasklm.pipeline.steps.write_shards", full)
    message = fit_error(files, tmp_path / "run")
    assert "disk is full" in message and "run the same command again" in message
    monkeypatch.setattr("tasklm.pipeline.steps.write_shards", shards.write_shards)
    given = options(files)
    assert (
        runner.invoke(
            app, ["fit", given.pop("data.train"), "--out", str(tmp_path / "run"), *words(given)]
        ).exit_code
        == 0
    )


def test_unknown_keys_are_told_without_a_traceback(files: Path, tmp_path: Path) -> None:
    wrong = ["--trian.steps", "3", "--train.stepz", "4"]
    command = [
        sys.executable,
        "-m",
        "tasklm",
        "fit",
        str(files / "train.jsonl"),
        *wrong,
        "--out",
        str(tmp_path / "run"),
    ]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 2 and "Traceback" not in result.stderr
    assert (
        "unknown section [trian]" in result.stderr
        and "did you mean 'train'?" in result.stderr
        and "'steps'" in result.stderr
    )


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
    assert [texts.index(asker["text"]) for asker in reasons["askers"]] == row["asked_by"][:5]
    for asker in reasons["askers"]:
        assert sum(term["adds"] for term in asker["terms"]) == pytest.approx(
            asker["score"], rel=1e-5
        )
    shown = runner.invoke(app, ["select", str(out), "--explain", row["id"]]).stdout
    assert "position 1 in the selection" in shown and "rank 1, score" in shown
    wrong = runner.invoke(app, ["select", str(out), "--explain", "nowhere"])
    assert "the passage nowhere is not in the selection" in str(wrong.exception)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"select__memory": "lots"}, "'lots' is not a size of at least 256 MiB"),
        ({"select__memory": "3MB"}, "'3MB' is not a size"),
        ({"select__method": "bm52"}, "bm25"),
        ({"select__stemming": "klingon"}, "no stemmer for 'klingon'"),
        ({"select__engine": "spork"}, "spark"),
    ],
)
def test_wrong_settings_of_selection_are_said_before_anything_is_read(
    files: Path, tmp_path: Path, change, message
) -> None:
    assert message in fit_error(files, tmp_path / "run", **change)
    assert not (tmp_path / ".cache").exists()


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


def test_unknown_plug_ins_are_named_all_at_once_before_any_work(
    files: Path, tmp_path: Path
) -> None:
    said = fit_error(
        files, tmp_path / "run", **{"train.objective": "elektra", "model.encoder": "brt"}
    )
    assert (
        "2 problems" in said and "no objective called 'elektra' (did you mean 'electra'?)" in said
    )
    assert "no encoder called 'brt' (did you mean 'bert'?)" in said
    assert not (tmp_path / "run" / "recipe.toml").exists()


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
