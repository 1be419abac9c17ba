"""The analyses of small real runs: what is kept, what is left out, and that nothing is computed
twice or hidden.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tasklm.analysis.class_vectors import in_the_plane, vectors_of
from tasklm.corpus.words import words
from tasklm.evaluate.calibration import calibration
from tasklm.models.weights import load_weights
from tasklm.pipeline import analysis as module
from tasklm.pipeline import flow
from tasklm.pipeline.analysis import drawn_encoder, insights, matched_words, spread_texts
from tasklm.pipeline.context import CorpusData, TaskData, Trained
from tasklm.pipeline.opening import open_run
from tasklm.recipe.toml import load
from tasklm.storage.files import read_json
from tasklm.tracking import SILENT
from tests.conftest import labelled, sentences, write_jsonl
from tests.end_to_end.conftest import QUICK, options
from tests.end_to_end.kind_data import CASES

Ready = tuple[Trained, TaskData, CorpusData | None]


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("insights-data")
    for name, count, seed in (("train", 160, 1), ("dev", 60, 2), ("test", 80, 3)):
        write_jsonl(folder / f"{name}.jsonl", labelled(count, seed))
    write_jsonl(
        folder / "corpus.jsonl", [{"text": " ".join(sentences(8, 100 + i))} for i in range(100)]
    )
    return folder


pytestmark = pytest.mark.usefixtures("speed_is_not_measured")


def trained(settings: dict[str, str], folder: Path, until: str = "evaluate") -> Ready:
    """A run trained to its end, as the flow has it in its hands when it scores it."""
    run = open_run(load(None, settings), folder, SILENT)
    task, corpus = flow._data(run)
    made = flow._train(run, task, corpus, until)
    assert made is not None
    return made, task, corpus


def found_of(ready: Ready) -> dict[str, Any]:
    return insights(ready[0])


@pytest.fixture(scope="module")
def ready(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Ready:
    return trained(options(files, finetune__epochs="2"), tmp_path_factory.mktemp("runs") / "run")


def test_all_parts_of_a_classifier(ready: Ready) -> None:
    made, task, _ = ready
    found = found_of(ready)
    assert list(found) == ["calibration", "class_vectors", "attention", "label_words"]
    best = int(np.argmax([read_json(seed.folder / "summary.json")["dev"] for seed in made.seeds]))
    gold = {
        split: [example.label for example in task.splits.named()[split]]
        for split in ("dev", "test")
    }
    answers = {split: made.predictions[split][best] for split in ("dev", "test")}
    assert found["calibration"] == calibration(["no", "yes"], gold, answers)
    assert (
        found["calibration"]["split"] == "test"
        and sum(one["count"] for one in found["calibration"]["before"]["bins"]) == 80
    )
    assert (found["attention"]["total"], len(found["attention"]["heads"])) == (2, 2)
    spoken = {
        entry["label"]: [word["word"] for word in entry["words"]] for entry in found["label_words"]
    }
    assert set(spoken["yes"][:3]) == {
        "water",
        "music",
        "cold",
    }  # what the labels of the little language are made of
    assert found == json.loads(
        (made.run.folder / "insights" / "insights.json").read_text(encoding="utf-8")
    )


def test_the_points_are_of_the_encoders_of_each_stage(ready: Ready) -> None:
    made, task, _ = ready
    found = found_of(ready)["class_vectors"]
    assert [stage["name"] for stage in found["stages"]] == [
        "before training",
        "after stage 1",
        "after stage 2",
    ]
    assert found["texts"] == [example.text for example in task.splits.dev]
    best = int(np.argmax([read_json(seed.folder / "summary.json")["dev"] for seed in made.seeds]))
    encoder = drawn_encoder(made.parts, made.run.recipe.train)
    for number, path in (
        (1, made.run.folder / "stage1" / "model.safetensors"),
        (2, made.seeds[best].folder / "best.safetensors"),
    ):
        weights = {
            name.removeprefix("encoder."): value
            for name, value in load_weights(path).items()
            if name.startswith("encoder.")
        }
        encoder.load_state_dict(weights)
        points = in_the_plane(vectors_of(encoder, made.parts.dev, made.run.machine))
        assert found["stages"][number]["points"] == points.tolist()


def test_nothing_is_computed_again(ready: Ready, monkeypatch: pytest.MonkeyPatch) -> None:
    before = found_of(ready)
    monkeypatch.setattr(module, "attention_heads", None)
    assert found_of(ready) == before


def test_a_failure_is_raised_and_nothing_half_done_is_kept(
    ready: Ready, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise ValueError("no words today")

    monkeypatch.setattr(
        module, "FORMAT", module.FORMAT + 1
    )  # as a newer version would: what is kept does not count
    with monkeypatch.context() as broken:
        broken.setattr(module, "label_words", fails)
        with pytest.raises(ValueError, match="no words today"):
            found_of(ready)
    assert "label_words" in found_of(ready)


@pytest.mark.parametrize("start", [False, True])
def test_the_first_encoder_is_the_one_that_stage_1_starts_from(
    start: bool, files: Path, ready: Ready
) -> None:
    """Which a stage 1 without steps leaves as it was."""
    settings = options(
        files, train__steps="0", finetune__epochs="1", finetune__seeds="1", train__seed="5"
    )
    settings |= {} if start else {"train.embeddings": "counts", "train.attention": "neighbours"}
    if start:
        settings = {
            key: value
            for key, value in settings.items()
            if not key.startswith("model.") and key != "tokens.vocabulary"
        }
        settings["train.start"] = str(ready[0].run.folder)
    folder = ready[0].run.folder.parent / ("started" if start else "drawn")
    made, _, _ = trained(settings, folder)
    kept = load_weights(folder / "stage1" / "model.safetensors")
    state = torch.get_rng_state()
    own = drawn_encoder(made.parts, made.run.recipe.train).state_dict()
    assert torch.equal(torch.get_rng_state(), state)
    assert own and all(torch.equal(value, kept[f"encoder.{name}"]) for name, value in own.items())


def test_a_kind_without_classes_has_attention_alone(
    files: Path, ready: Ready, tmp_path: Path
) -> None:
    """Here one whose options are answered together."""
    (case,) = [case for case in CASES if case.kind == "choice"]
    for name, count, seed in (("train", 24, 1), ("dev", 12, 2), ("test", 12, 3)):
        case.write(tmp_path / f"{name}{case.suffix}", case.rows(count, seed))
    data = {
        f"data.{name}": str(tmp_path / f"{name}{case.suffix}") for name in ("train", "dev", "test")
    }
    quick = {
        **QUICK,
        "train.steps": "4",
        "finetune.epochs": "1",
        "finetune.seeds": "1",
        "data.leaks": "keep",
    }
    given = {
        **data,
        **quick,
        "select.method": "bm25",
        "tokens.length": case.options.get("tokens__length", "32"),
    }
    beside = ready[0].run.folder.parent  # where the corpus is read already
    found = found_of(
        trained({**given, "data.corpus": str(files / "corpus.jsonl")}, beside / "choice")
    )
    assert list(found) == ["attention"] and (
        found["attention"]["total"],
        found["attention"]["texts"],
    ) == (2, 36)


def test_without_a_corpus_there_are_no_words_of_it(files: Path, tmp_path: Path) -> None:
    settings = {
        key: value
        for key, value in options(files).items()
        if key not in ("data.corpus", "data.test")
    }
    ready = trained(
        {**settings, "train.steps": "4", "finetune.epochs": "1", "finetune.seeds": "1"},
        tmp_path / "run",
    )
    found = found_of(ready)
    assert (
        list(found) == ["calibration", "class_vectors", "attention"]
        and found["calibration"]["split"] == "dev"
    )


def test_matched_words_are_those_of_the_first_asker(ready: Ready) -> None:
    made, task, corpus = ready
    assert corpus is not None and made.selected is not None
    rows = pq.read_table(made.selected).to_pylist()[:5]
    found = matched_words(made.run, task, corpus, made.selected, rows)
    holding = Counter(word for text in corpus.store.sample() for word in set(words(text)))
    usual = {
        word for word, count in holding.items() if count > 200
    }  # of the 2,000 passages of a sample
    for row, own in zip(rows, found, strict=True):
        asked = set(words(task.splits.train[row["matched_queries"][0]].text))
        assert set(own) == (asked & set(words(row["text"]))) - usual and len(own) == len(set(own))
    assert any(found)


def test_texts_lie_evenly_over_a_selection(tmp_path: Path) -> None:
    texts = [f"{number}" for number in range(100)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "some.parquet", row_group_size=10)
    assert list(spread_texts(tmp_path / "some.parquet", 1000)) == texts
    found = [int(text) for text in spread_texts(tmp_path / "some.parquet", 30)]
    assert (
        len(found) == 30
        and found == sorted(found)
        and {number // 10 for number in found} == set(range(10))
    )
