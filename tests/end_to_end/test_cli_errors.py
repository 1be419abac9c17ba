"""Inputs, options and places that are wrong: refused in words, with the way out."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tasklm.cli.app import app
from tasklm.cli.options import overrides_of
from tasklm.errors import RecipeError, TaskLMError
from tests.conftest import labelled, write_jsonl
from tests.end_to_end.command_line import fit_error, runner, words
from tests.end_to_end.conftest import options


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
