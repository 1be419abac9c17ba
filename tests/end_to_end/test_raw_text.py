"""Runs whose stage 2 also learns from text without labels: where it comes from, what is saved, and
what is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tasklm.analysis.run_pairs import difference_of
from tasklm.bill.record import read_bill
from tasklm.errors import DataError, RecipeError
from tasklm.evaluate.scores import Scores
from tasklm.evaluate.training_data import splits_of
from tasklm.models.task_model import load_models
from tasklm.models.weights import load_weights
from tasklm.pipeline.flow import fit
from tasklm.recipe.toml import load
from tasklm.serve.predictor import Predictor
from tasklm.storage.files import read_json
from tasklm.tracking import SILENT
from tests.conftest import labelled, sentences, write_jsonl
from tests.end_to_end.conftest import QUICK
from tests.end_to_end.forking import Commands
from tests.end_to_end.kind_data import CASES
from tests.end_to_end.test_kill import kill_at
from tests.end_to_end.test_processes import losses
from tests.end_to_end.test_several import tagged

FAST = {**QUICK, "train.steps": "6", "finetune.epochs": "2", "finetune.seeds": "1"}
FAST |= {"evaluate.baselines": "false", "evaluate.bootstrap": "100"}
FAST |= {"select.influence_steps": "5", "select.influence_model": "tiny"}
KINDS = {case.kind: case for case in CASES}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of each kind, and a corpus."""
    folder = tmp_path_factory.mktemp("raw")
    for case in CASES:
        for split, count, seed in (("train", 40, 1), ("dev", 15, 2), ("test", 15, 3)):
            case.write(folder / f"{case.kind}-{split}{case.suffix}", case.rows(count, seed))
    return with_corpus(folder)


def with_corpus(folder: Path) -> Path:
    """Writes a corpus of passages of six sentences, each with a capital at its beginning."""
    texts = [[text.capitalize() for text in sentences(6, 100 + number)] for number in range(30)]
    write_jsonl(folder / "corpus.jsonl", [{"text": " ".join(own)} for own in texts])
    return folder


def settings(data: Path, kind: str, student: str, **changes: Any) -> dict[str, Any]:
    case = KINDS[kind]
    files = {
        f"data.{split}": str(data / f"{kind}-{split}{case.suffix}")
        for split in ("train", "dev", "test")
    }
    given = {"data.corpus": str(data / "corpus.jsonl"), "finetune.unlabelled": student}
    more = {key.replace("__", "."): value for key, value in {**case.options, **changes}.items()}
    return {**FAST, **files, **given, **more}


def run(folder: Path, values: dict[str, Any]) -> Scores:
    scores = fit(load(None, values), folder, SILENT)
    assert scores is not None
    return scores


def words_of(values: dict[str, Any], out: Path) -> list[str]:
    """The words of the command that fits a recipe of these values."""
    given = dict(values)
    words = ["fit", given.pop("data.train"), "--corpus", given.pop("data.corpus")]
    words += ["--out", str(out)]
    for key, value in given.items():
        words += [f"--{key}", str(value)]
    return words


def raw_texts(folder: Path) -> list[dict[str, Any]]:
    texts: list[dict[str, Any]] = read_json(folder / "raw-text" / "texts.json")
    return texts


@pytest.mark.parametrize(
    ("kind", "student", "wide"),
    [
        ("tag", "cross-view", "true"),
        ("classify", "cross-view", "true"),
        ("parse", "cross-view", "false"),
        ("multilabel", "cross-view", "false"),
        ("tag", "word-dropout", "true"),
        ("parse", "vat", "false"),
    ],
)
def test_kinds_learn_from_the_selected_text(
    data: Path, tmp_path: Path, kind: str, student: str, wide: str
) -> None:
    folder = tmp_path / "run"
    scores = run(folder, settings(data, kind, student, finetune__wide=wide))
    (ours,) = [row for row in scores.rows if row.kind == "ours"]
    assert ours.name.endswith(f", {student} on raw text")
    texts = raw_texts(folder)
    assert len(texts) > 20 and not any(len(one["texts"]) > 1 for one in texts)
    if kind in ("tag", "parse"):  # a sentence each
        assert all(one["texts"][0].count(" .") == 1 for one in texts)
    curve = read_json(folder / "stage2" / "seed-1" / "curve.json")
    names = {name for point in curve for name in point} - {"step", "rate", "task", "dev"}
    if student == "cross-view":
        assert "full view" in names and len(names) >= 3
    else:
        assert names == {student}
    (part,) = read_bill(folder).corpus[0].parts
    assert part.stage2_texts == len(texts) and part.stage2_tokens > 2 * len(texts)
    loaded = load_models(folder / "model", load_device())
    assert not any("student" in name for name in loaded.model.state_dict())


def load_device() -> Any:
    return torch.device("cpu")


def test_a_crf_and_another_encoder_learn_too(data: Path, tmp_path: Path) -> None:
    values = settings(
        data, "tag", "cross-view", kind__crf="true", model__encoder="modern", model__layers="2"
    )
    assert run(tmp_path / "run", values).rows


def test_hidden_labels_and_a_file_are_raw_text(data: Path, tmp_path: Path) -> None:
    held_out = KINDS["classify"].rows(15, 2)[0]["text"]
    file = tmp_path / "more.txt"
    file.write_text(f"a text of the file\n\n{held_out}\na text of the file\n", encoding="utf-8")
    values = settings(
        data, "classify", "word-dropout", data__share="0.25", data__unlabelled=str(file)
    )
    del values["data.corpus"]
    folder = tmp_path / "run"
    scores = run(folder, values)
    assert scores.data["train"] == 10
    texts = [one["texts"][0] for one in raw_texts(folder)]
    train = [row["text"] for row in KINDS["classify"].rows(40, 1)]
    assert "a text of the file" in texts and held_out not in texts
    assert len(set(texts)) == len(texts) and 20 < len(set(texts) & set(train)) <= 30
    bill = read_bill(folder)
    assert [(one["role"], one["texts"]) for one in bill.others] == [
        ("text without labels", len(set(texts) - set(train)))
    ]
    hidden = sum(part.examples.get("without labels", 0) for part in bill.labelled[0].parts)
    assert hidden == len(set(texts) & set(train))
    # the run's examples are read again with the labels that it used, so that it can be compared
    task = Predictor(folder / "model").task
    assert len(splits_of(folder, task, "train again").train) == 10
    assert difference_of(folder, folder, (scores, scores)).difference == 0.0
    # another share is another data set, and another student another stage 2 alone
    before = (folder / "stage1" / "artefact.json").read_bytes()
    run(folder, {**values, "finetune.unlabelled": "vat"})
    assert (folder / "stage1" / "artefact.json").read_bytes() == before


def test_sources_are_chosen_and_others_left_out(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "more.txt"
    file.write_text("a text of the file\n", encoding="utf-8")
    train = {row["text"] for row in KINDS["classify"].rows(40, 1)}
    values = settings(
        data, "classify", "word-dropout", data__share="0.5", data__unlabelled=str(file)
    )
    folder = tmp_path / "run"
    texts = {}
    for source in ("hidden", "file", "passages", ""):
        run(folder, {**values, "finetune.unlabelled_from": source})
        texts[source] = {one["texts"][0] for one in raw_texts(folder)}
    assert texts["file"] == {"a text of the file"}
    assert len(texts["hidden"]) > 10 and texts["hidden"] <= train
    assert len(texts["passages"]) > 10 and not texts["passages"] & train
    assert texts[""] == texts["hidden"] | texts["file"] | texts["passages"]
    del values["data.unlabelled"]
    with pytest.raises(RecipeError, match=r"no text of finetune\.unlabelled_from \(file\)"):
        run(tmp_path / "none", {**values, "finetune.unlabelled_from": "file"})


def test_the_ablation_without_raw_text_is_a_row(data: Path, tmp_path: Path) -> None:
    values = settings(data, "tag", "word-dropout", evaluate__compare="supervised,task-only")
    scores = run(tmp_path / "run", values)
    names = [row.name for row in scores.rows if row.kind == "ablation"]
    assert names == ["labels alone, without raw text", "task data only"]
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "What the raw text changed" in page and "were right with labels alone" in page
    compared = tmp_path / "run" / "compare" / "supervised"
    assert not (compared / "raw-text").exists()
    ours, theirs = (
        read_json(folder / "stage2" / "seed-1" / "summary.json")
        for folder in (tmp_path / "run", compared)
    )
    assert ours["epochs"] == theirs["epochs"] and ours["steps"] == 2 * theirs["steps"]
    plain = {**values, "finetune.unlabelled": "none"}
    with pytest.raises(RecipeError, match=r"'supervised' goes with finetune\.unlabelled"):
        run(tmp_path / "other", {**plain, "evaluate.compare": "supervised"})


def test_what_cannot_be_is_refused_before_training(data: Path, tmp_path: Path) -> None:
    for kind, reason in (("choice", "options"), ("span", "questions"), ("regress", "number")):
        with pytest.raises(RecipeError, match=f"{kind} learn from labels alone.*{reason}"):
            run(tmp_path / kind, settings(data, kind, "cross-view"))
    with pytest.raises(RecipeError, match=r"finetune\.freeze keeps fixed"):
        run(tmp_path / "frozen", settings(data, "tag", "vat", finetune__freeze="true"))
    with pytest.raises(RecipeError, match=r"no student of raw text called 'cross'.*cross-view"):
        run(tmp_path / "name", settings(data, "tag", "cross"))
    for key, reason in (("views", "full"), ("unlabelled_tasks", "one")):
        values = settings(data, "tag", "vat", **{f"finetune__{key}": reason})
        with pytest.raises(RecipeError, match=f"finetune.{key} goes with .*vat has no modules"):
            run(tmp_path / key, values)
    with pytest.raises(
        RecipeError, match="'web' is not a source; choose from hidden, file, passages"
    ):
        run(tmp_path / "web", settings(data, "tag", "vat", finetune__unlabelled_from="web"))
    values = settings(data, "tag", "cross-view", model__encoder="modernbert")
    with pytest.raises(RecipeError, match="modernbert has no restricted views"):
        run(tmp_path / "encoder", values)
    assert not (tmp_path / "encoder" / "stage1").exists()
    values = settings(data, "tag", "vat")
    del values["data.corpus"]
    with pytest.raises(RecipeError, match=r"give --corpus, --data\.unlabelled or --data\.share"):
        run(tmp_path / "none", values)
    empty = tmp_path / "empty.txt"
    empty.write_text("\n\n", encoding="utf-8")
    with pytest.raises(DataError, match="empty, or occurs in dev or test"):
        run(tmp_path / "empty", {**values, "data.unlabelled": str(empty)})


def test_pairs_of_texts_do_not_come_from_passages(tmp_path: Path) -> None:
    for split, count, seed in (("train", 30, 1), ("dev", 10, 2)):
        rows = [
            {"text_a": one["text"], "text_b": two["text"], "label": one["label"]}
            for one, two in zip(labelled(count, seed), labelled(count, seed + 50), strict=True)
        ]
        write_jsonl(tmp_path / f"{split}.jsonl", rows)
    with_corpus(tmp_path)
    names = {f"data.{name}": str(tmp_path / f"{name}.jsonl") for name in ("train", "dev", "corpus")}
    values = {**FAST, **names, "finetune.unlabelled": "cross-view"}
    with pytest.raises(RecipeError, match="a passage is one text"):
        run(tmp_path / "passages", values)
    run(tmp_path / "share", {**values, "data.share": "0.5"})
    assert all(len(one["texts"]) == 2 for one in raw_texts(tmp_path / "share"))


def test_several_tasks_of_words_all_label_a_text(tmp_path: Path) -> None:
    for name, seed in (("first", 1), ("second", 100)):
        (tmp_path / name).mkdir()
        for split, count in (("train", 30), ("dev", 10)):
            rows = tagged(count, seed)
            write_jsonl(tmp_path / name / f"{split}.jsonl", rows)
            seed += 1
    with_corpus(tmp_path)
    values = {
        **FAST,
        "several.tasks": [str(tmp_path / "first"), str(tmp_path / "second")],
        "data.corpus": str(tmp_path / "corpus.jsonl"),
        "finetune.unlabelled": "cross-view",
        "finetune.wide": "true",
        "data.share": "0.5",
    }
    run(tmp_path / "run", values)
    assert {one["task"] for one in raw_texts(tmp_path / "run")} == {"first", "second"}
    curve = read_json(tmp_path / "run" / "stage2" / "seed-1" / "curve.json")
    names = {name for point in curve for name in point}
    assert {"first: future view", "second: future view", "second: full view"} <= names
    task = Predictor(tmp_path / "run" / "model").task
    assert len(splits_of(tmp_path / "run", task, "train again").train) == 30


def test_killed_beside_raw_text_ends_in_identical_weights(
    data: Path, tmp_path: Path, commands: Commands
) -> None:
    values = settings(data, "tag", "cross-view", train__checkpoint_seconds="0")

    straight, cut = tmp_path / "straight" / "run", tmp_path / "cut" / "run"
    commands.run(words_of(values, straight))
    points = ("raw-text.partial", "raw-text", "stage2/seed-1.partial/checkpoint-*")
    points += ("stage2/seed-1.partial/checkpoint-00000000[5-9]",)
    killed = [kill_at(commands, words_of(values, cut), cut, point, 0.01) for point in points]
    assert sum(killed) >= 2
    commands.run(words_of(values, cut))
    name = "stage2/seed-1/best.safetensors"
    one, other = load_weights(straight / name), load_weights(cut / name)
    assert all(np.array_equal(one[key].numpy(), other[key].numpy()) for key in one)


def test_two_processes_train_what_one_trains(
    data: Path, tmp_path: Path, commands: Commands
) -> None:
    """But for the order of sums: without dropout, whose draws are each process's own."""
    values = settings(
        data, "tag", "cross-view", finetune__dropout="0", finetune__unlabelled_dropout="0"
    )
    one, two = tmp_path / "one" / "run", tmp_path / "two" / "run"
    run(one, values)
    commands.run(words_of(values, two), processes=2)
    assert read_json(two / "manifest.json")["processes"] == 2
    ours, theirs = (losses(folder / "stage2" / "seed-1") for folder in (one, two))
    assert len(ours) == len(theirs) > 1
    for (step, values_of), (_, others) in zip(ours, theirs, strict=True):
        for name, value in values_of.items():
            assert others[name] == pytest.approx(value, abs=5e-3), (step, name)
