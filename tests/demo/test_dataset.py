from __future__ import annotations

import inspect
import json
import random
from pathlib import Path

import pyarrow
import pytest

from tasklm.corpus.words import words
from tasklm.demo import dataset, harvest
from tasklm.demo.recipe import SETTINGS, demo_recipe
from tasklm.errors import RunError
from tasklm.recipe.toml import load
from tasklm.tracking import SILENT

DOCSTRING = inspect.cleandoc(
    """Does a thing.

    Parameters
    ----------
    axis : int, optional
        Axis along which the thing is done.
    func : callable ``f(x)``
        Function to call on every part,
        one after the other.
    mixed : int or str
        Not one of the six kinds.

    Returns
    -------
    out : ndarray
        Not a parameter.
    """
)


def test_sentences_are_prose_and_scrambling_keeps_the_words() -> None:
    text = (
        "The matrix is first brought into a banded form. "
        "Then ``x[0] = 1`` and ``y[1] += 2`` are set in one go by f(x). Short one."
    )
    found = list(dataset._sentences(text))
    assert found == ["The matrix is first brought into a banded form."]
    scrambled = dataset._scrambled(found[0], random.Random(0)).split()
    assert scrambled != found[0].split() and sorted(scrambled) == sorted(found[0].split())
    assert (scrambled[0], scrambled[-1]) == ("The", "form.")


def test_passages_keep_entries_together_and_are_never_long() -> None:
    pieces = list(harvest.passages(DOCSTRING + "\n\n" + "word " * 150, longest=60))
    assert "axis : int, optional Axis along which the thing is done." in pieces
    assert all(6 <= len(piece.split()) <= 60 for piece in pieces)


def test_shared_runs_are_found() -> None:
    text = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
    runs = dataset.Runs([text, "a short text of seven words here"])
    assert runs.shared_by(f"before {text} after".split())
    assert runs.shared_by(["before", "a", "short", "text", "of", "seven", "words", "here", "after"])
    assert not runs.shared_by(text.replace("seven", "other").split())


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(harvest, "DISTRIBUTIONS", ("scipy",))
        patch.setattr(harvest.sysconfig, "get_paths", lambda: {"stdlib": str(folder / "nothing")})
        for name in ("first", "second"):
            dataset.build(folder / name)
    return folder


def test_the_data_set_is_the_same_every_time(built: Path) -> None:
    for name in ("train.jsonl", "dev.jsonl", "test.jsonl", "corpus.jsonl.zst", "ABOUT.json"):
        assert (built / "first" / name).read_bytes() == (built / "second" / name).read_bytes(), name


def test_nothing_leaks_between_splits_or_into_the_corpus(built: Path) -> None:
    rows = {
        name: [
            json.loads(line)
            for line in (built / "first" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
        ]
        for name in ("train", "dev", "test")
    }
    sources = {name: {row["source"] for row in part} for name, part in rows.items()}
    assert (
        not sources["train"] & sources["test"]
        and not sources["train"] & sources["dev"]
        and not sources["dev"] & sources["test"]
    )
    assert len(rows["train"]) == dataset.TRAIN and {row["label"] for row in rows["train"]} == set(
        dataset.LABELS
    )
    stream = pyarrow.CompressedInputStream(
        pyarrow.memory_map(str(built / "first" / "corpus.jsonl.zst")), "zstd"
    )
    corpus = [json.loads(line) for line in stream.read().decode().splitlines()]
    assert not {row["source"] for row in corpus} & (sources["dev"] | sources["test"])
    runs = {run for row in corpus for run in _runs(row["text"])}
    for row in rows["dev"] + rows["test"]:
        if row["label"] == "intact":
            assert not any(run in runs for run in _runs(row["text"])), row


def _runs(text: str) -> list[tuple[str, ...]]:
    found = words(text)
    return [tuple(found[i : i + 13]) for i in range(len(found) - 12)]


def test_a_built_data_set_is_reused(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harvest, "DISTRIBUTIONS", ("scipy",))
    monkeypatch.setattr("tasklm.demo.recipe.build", lambda folder: pytest.fail("built again"))
    recipe = demo_recipe(built / "first", SILENT)
    assert recipe.data.train == str(
        built / "first" / "train.jsonl"
    ) and recipe.evaluate.compare == ("task-only", "random")
    assert load(SETTINGS).train.steps == recipe.train.steps


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harvest, "DISTRIBUTIONS", ("no-such-package",))
    with pytest.raises(RunError, match=r"'no-such-package'.*pip install"):
        harvest.versions()
