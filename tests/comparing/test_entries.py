"""Which contestants a user may name, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasklm.comparing.entries import USUAL, Entry, entries_of
from tasklm.contestants.base import CONTESTANTS
from tasklm.errors import RecipeError


def problems(*words: str) -> str:
    with pytest.raises(RecipeError) as error:
        entries_of(words)
    return "\n".join(error.value.problems)


def test_the_usual_ones_need_no_folder() -> None:
    assert entries_of(USUAL) == [Entry(name, name) for name in USUAL]
    assert entries_of([" tfidf ", ""]) == [Entry("tfidf", "tfidf")]
    assert all(not CONTESTANTS.get(name).takes_folder for name in USUAL)


def test_a_name_that_is_no_folder_is_refused_with_the_way_out(tmp_path: Path) -> None:
    text = problems("minilm")
    assert (
        "there is no contestant 'minilm'; choose from hashed, majority, static, tasklm, tfidf"
        in text
    )
    assert "minilm=FOLDER" in text and "nothing is downloaded" in text
    assert "did you mean 'tfidf'" in problems("tfdif")
    text = problems("minilm=sentence-transformers/all-MiniLM-L6-v2")
    assert (
        "there is no folder 'sentence-transformers/all-MiniLM-L6-v2'; nothing is downloaded" in text
    )


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    lines = problems(
        "run", f"tfidf={tmp_path}", "a b=c", f"run={tmp_path}", f"onnx={tmp_path}"
    ).splitlines()
    assert lines[0] == "--with run: it needs a folder: run=FOLDER"
    assert lines[1].endswith("tfidf takes no folder; write tfidf alone")
    assert lines[2].endswith("a name has letters, digits, dots and hyphens alone")
    assert "has no trained model" in lines[3] and "tasklm export" in lines[4] and len(lines) == 5


def test_nothing_and_the_same_twice_are_refused() -> None:
    assert "name contestants, such as" in problems("", " ")
    assert problems("tfidf", "hashed", "tfidf").startswith("--with: tfidf is named twice")


def test_a_downloaded_model_is_two_contestants(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).touch()
    frozen, tuned = entries_of([f"minilm={tmp_path}"])
    assert (frozen.title, frozen.name, frozen.folder) == (
        "minilm frozen",
        "frozen",
        "minilm-frozen",
    )
    assert (tuned.title, tuned.name, tuned.path) == ("minilm fine-tuned", "tuned", tmp_path)


def test_a_run_is_called_by_its_name(tmp_path: Path) -> None:
    model = tmp_path / "first" / "model"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}", encoding="utf-8")
    assert [entry.title for entry in entries_of([f"run={model}"])] == ["run first"]
    (tmp_path / "first" / "recipe.toml").touch()
    assert [entry.title for entry in entries_of([f"run={tmp_path / 'first'}"])] == ["run first"]
    (model / "export.json").write_text("{}", encoding="utf-8")
    assert f"Compare it as onnx={model}" in problems(f"run={model}")
