"""Predictions of a model of several tasks: by one of them, and by all at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tasklm.cli.app import app
from tasklm.errors import DataError, RecipeError
from tasklm.recipe.data_sections import Data
from tasklm.recipe.schema import Hardware
from tasklm.recipe.toml import load
from tasklm.serve.all_tasks import AllTasks
from tasklm.serve.columns import columns_for
from tasklm.serve.predictor import Predictor
from tasklm.tasks.readers.several import columns_of
from tasklm.tokens.tokenizer import Vocabulary
from tests.conftest import sentences, write_jsonl
from tests.end_to_end.kind_data import LONG
from tests.serve.models import random_model
from tests.several_models import KINDS, several_run

ONE = Hardware(device="cpu", precision="fp32", threads=1)
TEXTS = [*sentences(3, 8), LONG, "music"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, vocabulary: Vocabulary) -> Path:
    return several_run(tmp_path_factory.mktemp("several"), vocabulary)


@pytest.fixture(scope="module")
def predictor(run: Path) -> Predictor:
    return Predictor(run / "model", ONE)


def lines_of(*words: str, given: str | None = None) -> list[dict[str, Any]]:
    done = CliRunner().invoke(app, ["predict", *words], input=given)
    if done.exception is not None:
        raise done.exception
    return [json.loads(line) for line in done.output.splitlines()]


def near(answer: Any) -> Any:
    """What is compared with rounding, inside of lists and objects too."""
    if isinstance(answer, dict):
        return {name: near(value) for name, value in answer.items()}
    return pytest.approx(answer, abs=1e-5) if isinstance(answer, float) else answer


def test_each_task_answers_all_at_once_as_it_does_alone(predictor: Predictor) -> None:
    tasks = AllTasks(predictor)
    together = list(tasks.answers(tasks.examples(TEXTS)))
    assert [answer["text"] for answer in together] == TEXTS
    for kind in KINDS:
        alone = predictor.of(kind).answers(TEXTS)
        assert [answer["tasks"][kind] for answer in together] == [near(one) for one in alone]


def test_the_encoder_reads_each_row_once(predictor: Predictor) -> None:
    rows: list[tuple[int, ...]] = []

    def note(_: Any, given: Any) -> None:
        rows.extend(tuple(row) for row in given[0].ids.tolist())

    watched = predictor.model.encoder.register_forward_pre_hook(note)
    tasks = AllTasks(predictor)
    answers = list(tasks.answers(tasks.examples(TEXTS[:3])))
    watched.remove()
    assert all(set(answer["tasks"]) == set(KINDS) for answer in answers)
    assert len(rows) == len(set(rows)) == 3


def test_texts_that_differ_only_for_the_wide_part_stay_apart(predictor: Predictor) -> None:
    tasks = AllTasks(predictor)
    same, again = tasks.answers(tasks.examples(["the cat", "the cat"]))
    (once,) = tasks.answers(tasks.examples(["the cat"]))
    assert same["tasks"] == again["tasks"]
    assert near(once["tasks"]) == same["tasks"]


def test_the_tasks_that_take_an_input_answer_it(predictor: Predictor) -> None:
    tasks = AllTasks(predictor)
    pair, row = tasks.answers(
        tasks.examples([("one", "two"), {"sentence1": "a", "sentence2": "b"}])
    )
    assert set(pair["tasks"]) == {"classify", "multilabel", "regress"}
    assert "regress" in row["tasks"] and row["text"] == "a\nb"
    with pytest.raises(DataError):
        list(tasks.examples([{"nothing": 1}]))


def test_the_command_line_asks_one_task_or_all(run: Path, tmp_path: Path) -> None:
    model = str(run / "model")
    (one,) = lines_of(model, TEXTS[0], "--task", "regress")
    assert set(one) == {"text", "score"}
    (every,) = lines_of(model, TEXTS[0], "--task", "all")
    assert every["tasks"]["regress"]["score"] == near(one["score"])
    lines = "\n".join(TEXTS)
    assert len(lines_of(model, "--task", "all", given=lines)) == len(TEXTS)
    (tmp_path / "new.txt").write_text(lines, encoding="utf-8")
    plain = lines_of(model, str(tmp_path / "new.txt"), "--task", "all")
    assert [answer["text"] for answer in plain] == TEXTS and set(plain[0]["tasks"]) == set(KINDS)


def test_a_table_is_answered_by_the_tasks_that_can_read_it(run: Path, tmp_path: Path) -> None:
    rows = [{"sentence1": text, "sentence2": "music"} for text in TEXTS[:3]]
    table = write_jsonl(tmp_path / "pairs.jsonl", rows)
    answers = lines_of(str(run / "model"), str(table), "--task", "all")
    assert [answer["text"] for answer in answers] == [f"{text}\nmusic" for text in TEXTS[:3]]
    assert all({"classify", "regress"} <= set(answer["tasks"]) for answer in answers)
    with pytest.raises(DataError, match="nothing"):
        lines_of(
            str(run / "model"),
            str(write_jsonl(tmp_path / "other.jsonl", [{"nothing": 1}])),
            "--task",
            "all",
        )


def test_without_a_name_or_with_a_wrong_one_the_names_are_told(run: Path) -> None:
    for words in ([], ["--task", "nothing"]):
        with pytest.raises(RecipeError, match="name one of: classify, multilabel, regress, tag"):
            lines_of(str(run / "model"), "a text", *words)


def test_a_model_of_one_task_takes_no_name(tmp_path: Path, vocabulary: Vocabulary) -> None:
    model = random_model(tmp_path / "one", "classify", vocabulary)
    for name in ("rte", "all"):
        with pytest.raises(RecipeError, match="the model has one task, of kind classify"):
            lines_of(str(model), "a text", "--task", name)


def test_an_ensemble_answers_for_a_task_by_the_mean(tmp_path: Path, vocabulary: Vocabulary) -> None:
    run = several_run(tmp_path, vocabulary, ("classify", "regress"), models=2)
    (one,) = lines_of(str(run / "model"), TEXTS[0], "--task", "classify")
    (every,) = lines_of(str(run / "model"), TEXTS[0], "--task", "all")
    assert every["tasks"]["classify"]["label"] == one["label"]
    assert every["tasks"]["classify"]["probabilities"] == near(one["probabilities"])


def test_rows_have_the_columns_of_their_tasks(run: Path, tmp_path: Path) -> None:
    columns = columns_for(load(run / "recipe.toml"))
    assert isinstance(columns, dict) and set(columns) == set(KINDS)
    assert columns["regress"].text_column == "sentence1,sentence2"
    recipe = load(run / "recipe.toml").changed(
        several={"tasks": [f"gone={tmp_path / 'gone.csv'}"]}, data={"text_column": "body"}
    )
    assert columns_of(recipe) == {"gone": recipe.data}
    named = Predictor(run / "model", ONE, {"classify": Data(text_column="body")})
    assert named.of("classify").answers([{"body": "music", "more": "a much longer text"}])
    with pytest.raises(DataError, match="body"):
        named.of("classify").answers([{"text": "music"}])
    assert columns_for(None) == Data()
