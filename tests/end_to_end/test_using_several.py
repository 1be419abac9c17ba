"""A trained model of several tasks, used from Python and by the command line."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tasklm import TaskLM
from tasklm.cli.app import app
from tasklm.errors import DataError, RecipeError, RunError
from tasklm.evaluate.training_data import splits_of
from tasklm.tasks.several import member_of
from tests.conftest import sentences, write_jsonl
from tests.end_to_end.conftest import QUICK
from tests.end_to_end.kind_data import ASKED
from tests.several_models import write_tasks

KINDS = ("classify", "regress", "tag")
FAST = {
    **QUICK,
    "train.steps": "4",
    "finetune.epochs": "1",
    "finetune.seeds": "1",
    "finetune.wide": "true",
    "select.k": "3",
    "data.leaks": "keep",
    "evaluate.bootstrap": "100",
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tasks")
    write_tasks(folder, KINDS)
    rows: list[dict[str, object]] = [
        {"text": " ".join(sentences(8, 100 + i)), "source": f"s{i % 3}"} for i in range(40)
    ]
    write_jsonl(folder / "corpus.jsonl", rows)
    return folder


@pytest.fixture(scope="module")
def model(data: Path) -> TaskLM:
    out = data / "runs" / "many"
    trained = TaskLM(corpus=data / "corpus.jsonl", settings=FAST, out=out)
    return trained.fit({"yes": data / "classify", "pairs": data / "regress", "tags": data / "tag"})


def test_each_task_predicts_and_is_scored_by_its_name(model: TaskLM) -> None:
    assert isinstance(model.classes_, dict) and list(model.classes_) == ["yes", "pairs", "tags"]
    assert model.classes_["yes"].tolist() == ["no", "yes"]
    texts = sentences(4, 9)
    labels = model.predict(texts, task="yes")
    assert isinstance(labels, np.ndarray) and set(labels) <= {"no", "yes"}
    shares = model.predict_proba(texts, task="yes")
    assert shares.shape == (4, 2) and model.score(texts, labels, task="yes") == 1.0
    scores = model.predict([(text, "music") for text in texts], task="pairs")
    assert {type(score) for score in scores} == {float}
    tags = model.predict(texts, task="tags")
    assert [len(one) for one in tags] == [len(text.split()) for text in texts]
    assert model.score(texts, list(tags), metric="accuracy", task="tags") == 1.0
    with pytest.raises(RunError, match="predict_proba is for classes"):
        model.predict_proba(texts, task="tags")


def test_all_tasks_answer_at_once(model: TaskLM) -> None:
    (answer,) = model.answers([ASKED], task="all")
    assert answer["text"] == ASKED and list(answer["tasks"]) == ["yes", "pairs", "tags"]
    (alone,) = model.answers([ASKED], task="yes")
    assert alone == {
        "text": ASKED,
        "label": answer["tasks"]["yes"]["label"],
        "probabilities": pytest.approx(answer["tasks"]["yes"]["probabilities"], abs=1e-6),
    }


def test_without_a_task_the_names_are_told(model: TaskLM) -> None:
    for call in (model.predict, model.answers, model.predict_proba):
        with pytest.raises(RecipeError, match="several tasks; name one of: yes, pairs, tags"):
            call(["a text"])
    with pytest.raises(RecipeError, match="no task 'rte'"):
        model.predict(["a text"], task="rte")
    with pytest.raises(RecipeError, match="name one of"):
        model.explain("a text")


def test_what_is_for_one_task_is_refused(data: Path) -> None:
    tasks = {"yes": data / "classify", "tags": data / "tag"}
    with pytest.raises(RecipeError, match="labels, dev and test are for one task"):
        TaskLM(settings=FAST).fit(tasks, dev=data / "classify" / "dev.jsonl")
    with pytest.raises(RecipeError, match="labels, dev and test are for one task"):
        TaskLM(settings=FAST).fit(tasks, ["a"])
    with pytest.raises(RecipeError, match="'all' cannot be the name of a task"):
        TaskLM(settings=FAST).fit({"all": data / "classify", "tags": data / "tag"})


def test_it_is_loaded_saved_and_shown(model: TaskLM, tmp_path: Path) -> None:
    again = TaskLM.load(model.folder_)
    assert list(again.predict([ASKED], task="yes")) == list(model.predict([ASKED], task="yes"))
    model.save(tmp_path / "copy")
    copy = TaskLM.load(tmp_path / "copy")
    assert isinstance(copy.classes_, dict) and copy.classes_["yes"].tolist() == ["no", "yes"]
    assert "several (yes: classify, pairs: regress, tags: tag)" in copy._repr_html_()


def test_rows_have_the_columns_of_their_task(model: TaskLM) -> None:
    row = {"sentence1": ASKED, "sentence2": "music", "more": ASKED * 3}
    (one,), (other,) = (model.answers([given], task="pairs") for given in (row, (ASKED, "music")))
    assert one == other


def test_a_prediction_is_explained_by_the_examples_of_its_task(model: TaskLM) -> None:
    why = model.explain(ASKED, top=2, task="yes")
    assert why.label in ("no", "yes") and why.examples.in_all == 24
    sides = [*why.examples.supporting, *why.examples.opposing]
    assert sides and all("train.jsonl" in attribution.where for attribution in sides)
    assert all(attribution.label in ("no", "yes") for attribution in sides)
    assert why.passages is not None and why.passages.compared > 0
    tagged = model.explain(ASKED, top=2, task="tags")
    assert tagged.examples.in_all == 24


def test_the_command_line_explains_by_the_name_of_the_task(model: TaskLM) -> None:
    run = str(model.folder_)
    words = ["explain", run, ASKED, "--task", "yes", "--top", "1", "--json"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.exception
    explained = json.loads(done.output)
    assert explained["examples"]["in_all"] == 24 and explained["passages"]["compared"] > 0
    refused = CliRunner().invoke(app, ["explain", run, ASKED])
    assert "name one of: yes, pairs, tags" in str(refused.exception)


def test_the_examples_of_a_task_are_read_again_and_changed_files_refused(
    model: TaskLM, data: Path
) -> None:
    run = model.folder_
    whole = model.predictor_.task
    everything = splits_of(run, whole, "train again")
    assert {example.task for example in everything.train} == {"yes", "pairs", "tags"}
    mine = member_of(whole, "yes").own(everything.train)
    assert len(mine) == 24 and {example.label for example in mine} == {"no", "yes"}
    file = data / "classify" / "train.jsonl"
    before = file.read_text(encoding="utf-8")
    try:
        file.write_text(before + before.splitlines()[0] + "\n", encoding="utf-8")
        with pytest.raises(RunError, match="train has 73 examples instead of 72"):
            splits_of(run, whole, "train again")
        file.write_text(before.replace('"yes"', '"perhaps"', 1), encoding="utf-8")
        with pytest.raises(RunError, match=r"the labels of .*train\.jsonl differ"):
            splits_of(run, whole, "train again")
        file.unlink()
        with pytest.raises(RunError, match="can no longer be read"):
            splits_of(run, whole, "train again")
    finally:
        file.write_text(before, encoding="utf-8")


def test_a_text_that_no_task_takes_is_refused(model: TaskLM) -> None:
    with pytest.raises(DataError):
        model.answers([{"nothing": 1}], task="all")


@pytest.mark.parametrize(
    ("kinds", "words"),
    [
        (("regress", "classify"), '--task classify "a text"'),
        (("regress", "pairs"), "--task regress /"),
    ],
)
def test_the_next_command_is_one_that_works(
    tmp_path: Path, kinds: tuple[str, str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    write_tasks(tmp_path, [kind for kind in kinds if kind != "pairs"])
    if "pairs" in kinds:
        shutil.copytree(tmp_path / "regress", tmp_path / "pairs")
    options = []
    for key, value in FAST.items():
        options += [f"--{key}", value]
    run = tmp_path / "runs" / "many"
    folders = [str(tmp_path / kind) for kind in kinds]
    done = CliRunner().invoke(app, ["fit", *folders, "--out", str(run), *options])
    assert done.exit_code == 0, (done.output, done.exception)
    (line,) = [one for one in done.output.splitlines() if one.startswith("next: ")]
    assert words in line
    again = CliRunner().invoke(app, shlex.split(line.removeprefix("next: tasklm ")))
    assert again.exit_code == 0, (line, again.exception)
    assert json.loads(again.output.splitlines()[0])["text"]
