"""TaskLM with other kinds of tasks than one class per text."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import pearsonr
from sklearn.metrics import accuracy_score, f1_score
from typer.testing import CliRunner

from tasklm import TaskLM
from tasklm.cli.app import app
from tasklm.errors import DataError, RunError
from tests.conftest import sentences, write_jsonl
from tests.end_to_end.conftest import QUICK

FAST = {
    **QUICK,
    "train.steps": "2",
    "finetune.epochs": "1",
    "finetune.seeds": "1",
    "evaluate.baselines": "false",
}
NOUNS = ["cat", "dog", "water", "music", "house", "road"]


def fitted(rows: list[dict[str, object]], folder: Path, **settings: str) -> TaskLM:
    return TaskLM(settings={**FAST, **settings}, out=str(folder / "run")).fit(
        write_jsonl(folder / "train.jsonl", rows)
    )


@pytest.fixture(scope="module")
def scores() -> TaskLM:
    pairs = list(zip(sentences(60, 1), sentences(60, 2), strict=True))
    return TaskLM(settings=FAST).fit(pairs, [len(one) / 7 + 0.1 for one, _ in pairs])


@pytest.fixture(scope="module")
def choices(tmp_path_factory: pytest.TempPathFactory) -> TaskLM:
    draw, rows = random.Random(1), []
    for number in range(60):
        options = draw.sample(NOUNS, 3)
        rows.append(
            {
                "ask": f"which is number {number} of {' '.join(draw.sample(NOUNS, 3))} ?",
                "options": options,
                "answer": number % 3,
            }
        )
    settings = {"data.kind": "choice", "data.text_column": "ask"}
    return fitted(rows, tmp_path_factory.mktemp("choices"), **settings)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def tags(tmp_path_factory: pytest.TempPathFactory) -> TaskLM:
    rows: list[dict[str, object]] = []
    for text in sentences(60, 3):
        rows.append(
            {
                "tokens": text.split(),
                "tags": ["B-NUM" if word.isdigit() else "O" for word in text.split()],
            }
        )
    return fitted(rows, tmp_path_factory.mktemp("tags"))


def test_scores_of_pairs_are_floats(scores: TaskLM) -> None:
    assert scores.predictor_.task.kind == "regress"
    pairs = list(zip(sentences(20, 5), sentences(20, 6), strict=True))
    found = scores.predict(pairs)
    assert isinstance(found, list) and {type(score) for score in found} == {float}
    assert (
        found
        == scores.predict(np.array(pairs))
        == scores.predict([{"text_a": one, "text_b": other} for one, other in pairs])
    )
    assert found != scores.predict([(other, one) for one, other in pairs])
    answers = scores.answers(pairs)
    assert [answer["score"] for answer in answers] == found and answers[0]["text"] == "\n".join(
        pairs[0]
    )
    assert (
        scores.answers(['{"text_a": "a", "text_b": "b"}'])[0]["text"]
        == '{"text_a": "a", "text_b": "b"}'
    )  # a text is a text
    gold = [len(one) / 7 for one, _ in pairs]
    assert scores.score(pairs, gold, metric="pearson") == pytest.approx(pearsonr(gold, found)[0])
    with pytest.raises(
        RunError, match="predict_proba is for classes, and this model is of kind regress"
    ):
        scores.predict_proba(pairs)
    with pytest.raises(DataError, match="a pair has two texts, not 3"):
        scores.predict([("a", "b", "c")])


def test_choices_are_asked_by_rows_with_the_columns_of_train(
    choices: TaskLM, tmp_path: Path
) -> None:
    rows: list[dict[str, Any]] = [
        {"ask": f"which of {noun} ?", "options": NOUNS[:count]}
        for noun in NOUNS
        for count in (2, 3)
    ]
    found = choices.predict(rows)
    assert {type(number) for number in found} == {int} and all(
        0 <= number < len(row["options"]) for number, row in zip(found, rows, strict=True)
    )
    assert [answer["option"] for answer in choices.answers(rows)] == [
        row["options"][number] for number, row in zip(found, rows, strict=True)
    ]
    gold = [number % 2 for number in range(len(rows))]
    assert choices.score(rows, gold) == pytest.approx(accuracy_score(gold, found))
    assert TaskLM.load(choices.folder_).predict(rows) == found  # the run's recipe knows the columns
    choices.save(tmp_path / "saved")
    usual = [{"question": row["ask"], "options": np.array(row["options"])} for row in rows]
    assert (
        TaskLM.load(tmp_path / "saved").predict(usual) == found
    )  # by itself it knows the usual names
    with pytest.raises(DataError, match="question and options"):
        choices.predict(["a text alone"])
    with pytest.raises(DataError, match="kind choice does not take a pair of texts"):
        choices.predict([("one", "other")])


def test_tags_are_lists_and_answers_are_as_printed(tags: TaskLM, tmp_path: Path) -> None:
    texts = sentences(8, 9)
    found = tags.predict(texts)
    words = [answer["words"] for answer in tags.answers(texts)]
    assert all(
        isinstance(one, list) and len(one) == len(split)
        for one, split in zip(found, words, strict=True)
    )
    assert tags.predict([{"tokens": split} for split in words]) == found
    right = [["O"] * len(split) for split in words]
    flat = [
        (tag, guess)
        for line, guesses in zip(right, found, strict=True)
        for tag, guess in zip(line, guesses, strict=True)
    ]
    assert tags.score(texts, right, metric="accuracy") == pytest.approx(
        np.mean([tag == guess for tag, guess in flat])
    )
    with pytest.raises(DataError, match="the labels do not fit the inputs"):
        tags.score(texts, [["O"]] * len(texts), metric="accuracy")
    asked = write_jsonl(tmp_path / "asked.jsonl", [{"text": text} for text in texts])
    printed = (
        CliRunner()
        .invoke(app, ["predict", str(tags.model_folder_), str(asked)])
        .stdout.splitlines()
    )
    assert [json.loads(line) for line in printed] == json.loads(json.dumps(tags.answers(texts)))


def test_several_labels_are_lists_of_names(tmp_path: Path) -> None:
    draw = random.Random(3)
    names = [draw.sample(NOUNS, 2) for _ in range(60)]
    texts = [f"{' '.join(some)} number {number}" for number, some in enumerate(names)]
    model = TaskLM(settings=FAST).fit(texts, [{*some} & {"cat", "dog"} for some in names])
    assert model.predictor_.task.kind == "multilabel" and model.classes_.tolist() == ["cat", "dog"]
    found = model.predict(texts[:10])
    assert all(isinstance(one, list) for one in found)
    gold = [{*some} & {"cat", "dog"} for some in names[:10]]
    marked = [
        np.array([[name in one for name in ("cat", "dog")] for one in sets])
        for sets in (gold, found)
    ]
    assert model.score(texts[:10], gold, metric="micro_f1") == pytest.approx(
        f1_score(*marked, average="micro")
    )
    with pytest.raises(RunError, match="kind multilabel"):
        model.predict_proba(texts)


def test_answers_to_questions_are_texts(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = []
    for text in sentences(60, 4):
        number = text.split()[-2]
        rows.append(
            {
                "question": "which number ?",
                "context": text,
                "answers": {"text": [number], "answer_start": [text.index(number)]},
            }
        )
    model = fitted(rows, tmp_path)
    pairs = [("which number ?", text) for text in sentences(6, 8)]
    found = model.predict(pairs)
    assert all(
        isinstance(one, str) and one in text for one, (_, text) in zip(found, pairs, strict=True)
    )
    assert found == model.predict(
        [{"question": question, "context": text} for question, text in pairs]
    )
    assert model.score(pairs, found, metric="exact_match") == 1.0
    assert model.score(pairs, [[one, "x"] for one in found], metric="exact_match") == 1.0
    assert model.score(pairs, ["nothing alike"] * 6, metric="exact_match") == 0.0


def test_rows_that_cannot_be_trained_on_are_told() -> None:
    with pytest.raises(DataError, match="fit accepts rows with columns only from a file"):
        TaskLM().fit([{"text": "a"}, {"text": "b"}], ["x", "y"])
    with pytest.raises(DataError, match="a pair has two texts, not 1"):
        TaskLM().fit([("a",)], ["x"])
