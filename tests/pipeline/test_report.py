"""What a finished run hands to its report: the recipe with what was decided, classes, mistakes,
words; each against a count by hand.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import precision_recall_fscore_support
from sklearn.preprocessing import MultiLabelBinarizer

from tasklm import __version__, run_folder
from tasklm.analysis.word_counts import overrepresented
from tasklm.artifacts import Artefacts
from tasklm.budget.scope import LINEAR, TEXT
from tasklm.pipeline import evaluation, flow, report
from tasklm.pipeline.bill import keep_bill
from tasklm.pipeline.context import CorpusData, TaskData, Trained
from tasklm.pipeline.opening import open_run
from tasklm.pipeline.report import decided, report_parts
from tasklm.pipeline.stage_planning import NO_NETWORK
from tasklm.recipe.toml import load
from tasklm.report.report import ReportParts
from tasklm.storage.files import read_json
from tasklm.tasks.base import Task
from tasklm.tasks.choice import Choice
from tasklm.tasks.classify import Classify
from tasklm.tasks.examples import Example, Splits
from tasklm.tasks.multilabel import Multilabel
from tasklm.tasks.tag import Tag
from tasklm.tracking import SILENT
from tests.conftest import labelled, sentences, write_jsonl
from tests.end_to_end.conftest import options

DECIDED = (
    "model.size",
    "tokens.vocabulary",
    "train.steps",
    "train.batch",
    "select.k",
    "train.learning_rate",
    "finetune.learning_rate",
    "model.heads",
)


pytestmark = pytest.mark.usefixtures("speed_is_not_measured")


@dataclass
class Ready:
    """A trained run, and what its report shows."""

    made: Trained
    task: TaskData
    corpus: CorpusData | None
    shown: ReportParts


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Ready:
    """A run that decides nearly everything, from FLOPs, with a password in its recipe and an
    ablation beside it.
    """
    folder = tmp_path_factory.mktemp("reporting")
    for name, count, seed in (("train", 60, 1), ("dev", 24, 2), ("test", 24, 3)):
        write_jsonl(folder / f"{name}.jsonl", labelled(count, seed))
    write_jsonl(
        folder / "corpus.jsonl",
        [{"text": " ".join(sentences(8, 100 + i)), "source": f"s{i % 3}"} for i in range(100)],
    )
    settings = {key: value for key, value in options(folder).items() if key not in DECIDED}
    settings |= {
        "budget.flops": "5e8",
        "select.url": "http://me:secret@127.0.0.1:9200",
        "finetune.epochs": "1",
    }
    settings |= {
        "evaluate.compare": "random",
        "evaluate.baselines": "false",
        "evaluate.bootstrap": "100",
    }
    run = open_run(load(None, settings), folder / "a run", SILENT)
    task, corpus = flow._data(run)
    made = flow._train(run, task, corpus, "evaluate")
    assert made is not None
    scores = flow._scores(made)
    evaluation.keep_best(made, scores)
    keep_bill(made)
    shown = report_parts(made, scores, {})
    return Ready(made, task, corpus, shown)


def test_the_recipe_shown_loads_and_has_the_numbers_of_the_run(
    ready: Ready, tmp_path: Path
) -> None:
    (tmp_path / "recipe.toml").write_text(ready.shown.recipe_toml, encoding="utf-8")
    again, run, shape = load(tmp_path / "recipe.toml"), ready.made.run, ready.made.parts.shape
    stage1, seed = (
        read_json(run.folder / place / "summary.json") for place in ("stage1", "stage2/seed-1")
    )
    assert (again.train.steps, again.train.batch, again.train.rho1) == (
        stage1["steps"],
        stage1["batch"],
        stage1["rho1"],
    )
    assert (again.train.learning_rate, again.finetune.learning_rate) == (
        stage1["learning_rate"],
        seed["learning_rate"],
    )
    assert (again.finetune.epochs, again.select.k, again.select.passages) == (
        seed["epochs"],
        ready.made.plan.k,
        ready.made.plan.passages,
    )
    assert (again.model.layers, again.model.width, again.model.heads, again.model.feedforward) == (
        1,
        32,
        1,
        shape.feedforward,
    )
    assert (again.model.encoder, again.model.size) == (
        ready.made.parts.encoder,
        ready.made.plan.size,
    )
    assert again.tokens.vocabulary == len(ready.made.parts.vocabulary)
    assert (again.budget.minutes, again.budget.flops) == (None, None)
    assert "secret" not in ready.shown.recipe_toml and again.select.url == "http://127.0.0.1:9200"
    assert again.data.train == str((run.folder.parent / "train.jsonl").resolve())
    left = {
        f"{section}.{key}"
        for section, values in tomllib.loads(ready.shown.recipe_toml).items()
        for key in values
    }
    assert {*DECIDED, "select.passages", "train.rho1"} <= left


def test_the_recipe_shown_gives_the_same_answers(ready: Ready, tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(ready.shown.recipe_toml, encoding="utf-8")
    run = open_run(
        load(tmp_path / "recipe.toml"), ready.made.run.folder.parent / "a run-again", SILENT
    )
    task, corpus = flow._data(run)
    again = flow._train(run, task, corpus, "evaluate")
    assert again is not None and again.predictions == ready.made.predictions
    assert decided(again) == run.recipe  # nothing is left to decide


def test_command_versions_and_whose_answers(ready: Ready) -> None:
    manifest = read_json(ready.made.run.folder / "manifest.json")
    assert ready.shown.command == "tasklm run recipe.toml --out 'a run-again'"
    assert (
        ready.shown.made_with
        == f"tasklm {__version__}, torch {manifest['torch']}, Python {manifest['python']}, on cpu"
    )
    dev = [read_json(seed.folder / "summary.json")["dev"] for seed in ready.made.seeds]
    assert (ready.shown.split, ready.shown.seed) == (
        "test",
        f"seed {int(np.argmax(dev)) + 1} of 2, the best on dev",
    )
    assert list(ready.shown.reading) == ready.task.splits.notes
    *reasons, warning = ready.shown.notes
    assert reasons == list(ready.made.plan.reasons) and warning.startswith(
        "Warning: stage 1 has few steps (24)"
    )


def test_the_selection_is_described_in_arrays_and_against_the_random_one(ready: Ready) -> None:
    assert ready.made.selected is not None and ready.corpus is not None
    rows = pq.read_table(ready.made.selected).to_pylist()
    for found, wanted in (
        (ready.shown.selected_scores, "score"),
        (ready.shown.selected_ranks, "rank"),
    ):
        assert isinstance(found, np.ndarray)
        np.testing.assert_array_equal(
            found, np.array([row[wanted] for row in rows]) + (wanted == "rank")
        )
    drawn = pq.read_table(
        ready.made.run.folder / "compare" / "random" / "selected" / "selected.parquet"
    )["text"].to_pylist()
    texts = [row["text"] for row in rows]
    assert ready.shown.words_random == overrepresented(texts, drawn)
    assert ready.shown.words == overrepresented(texts, ready.corpus.store.sample())


def test_time_is_counted_as_flops_are(ready: Ready, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model took one seed of stage 2, on average, and an ensemble all of them."""
    plain, spent = run_folder.read_json, {"seed-1": 100.0, "seed-2": 300.0}

    def read(path: Path) -> Any:
        return (
            plain(path) | {"seconds": spent[path.parent.name]}
            if path.parent.name in spent
            else plain(path)
        )

    monkeypatch.setattr(run_folder, "read_json", read)
    made = ready.made
    alone, together = (evaluation.model_row(made, "x", kind) for kind in ("ours", "ensemble"))
    assert together.seconds - alone.seconds == pytest.approx(200, abs=0.11)  # both are rounded


def test_classes_of_one_label_each() -> None:
    gold, found = ["a", "a", "b", "b"], ["a", "b", "b", "c"]
    matrix, scores = report._classes(
        Classify(["a", "b"]), [Example(("x",), label) for label in gold], found
    )
    assert matrix is not None and matrix[0] == ["a", "b", "c"]
    assert matrix[1].tolist() == [[1, 1, 0], [0, 1, 1], [0, 0, 0]]
    wanted = precision_recall_fscore_support(gold, found, labels=matrix[0], zero_division=0)
    np.testing.assert_allclose(
        [[one.precision, one.recall, one.f1, one.gold] for _, one in scores], np.transpose(wanted)
    )


def test_label_sets_have_scores_and_no_matrix() -> None:
    """By position a would be taken for b, and b for c."""
    gold, found = [("a", "b"), ("b",), (), ("a", "c")], [("b", "c"), ("b",), ("a",), ()]
    matrix, scores = report._classes(
        Multilabel(["a", "b", "c"]), [Example(("x",), label) for label in gold], found
    )
    assert matrix is None
    binary = MultiLabelBinarizer(classes=["a", "b", "c"]).fit([[]])
    wanted = precision_recall_fscore_support(
        binary.transform(gold), binary.transform(found), average=None, zero_division=0
    )
    np.testing.assert_allclose(
        [[one.precision, one.recall, one.f1, one.gold] for _, one in scores], np.transpose(wanted)
    )
    same = [("a",), ("b",)]  # as many names on both sides are no alignment
    assert (
        report._classes(
            Multilabel(["a", "b"]), [Example(("x",), label) for label in same], same[::-1]
        )[0]
        is None
    )


def test_tags_are_compared_word_by_word() -> None:
    examples = [
        Example(("x y",), ["O", "B"], words=("x", "y")),
        Example(("z",), ["O"], words=("z",)),
    ]
    matrix, _ = report._classes(Tag(["B", "O"], "plain"), examples, [["B", "B"], ["O"]])
    assert matrix is not None and (matrix[0], matrix[1].tolist()) == (["B", "O"], [[1, 0], [1, 1]])


def test_very_many_classes_have_no_matrix() -> None:
    names = [f"{number:04}" for number in range(report.MOST_CLASSES + 1)]
    matrix, scores = report._classes(Classify(names), [Example(("x",), "0007")], ["0008"])
    assert matrix is None and len(scores) == len(names)
    assert report._classes(Classify(names[1:]), [Example(("x",), "0007")], ["0008"])[0] is not None


def mistakes_of(task: Task, examples: list[Example], answers: list[dict[str, Any]]) -> list[Any]:
    data = TaskData(task, Splits([], [], examples), [], "", task.metrics[0])
    found = report._mistakes(None, data, examples, json.loads(json.dumps(answers)))  # type: ignore[arg-type]
    return [(one["text"], one["gold"], one["predicted"], one["probability"]) for one in found]


def test_mistakes_of_label_sets_show_empty_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "_supporting", lambda run, task, asked: [[] for _ in asked])
    examples = [
        Example((text,), label)
        for text, label in (("one", ("a",)), ("two", ()), ("three", ("a", "b")))
    ]
    answers = [
        {"labels": labels, "probabilities": {"a": 0.6, "b": 0.1}}
        for labels in ([], ["b"], ["b", "a"])
    ]
    found = mistakes_of(Multilabel(["a", "b"]), examples, answers)
    assert found == [("one", "a", "none", None), ("two", "none", "b", None)]


def test_mistakes_of_a_choice_are_options_the_surest_first() -> None:
    """Nothing is said to have supported it: an example is several rows, which cannot be compared."""
    examples = [
        Example(("what ?", "cat", "dog"), gold, options=("cat", "dog")) for gold in (0, 1, 0)
    ]
    odds = [[0.4, 0.6], [0.1, 0.9], [0.25, 0.75]]
    answers = [{"option": "dog", "number": 1, "probabilities": some} for some in odds]
    found = mistakes_of(Choice(2), examples, answers)
    assert found == [
        ("what ?\ncat\ndog", "cat", "dog", 0.75),
        ("what ?\ncat\ndog", "cat", "dog", 0.6),
    ]


def test_a_budget_that_bought_few_steps_is_among_what_was_decided(tmp_path: Path) -> None:
    artefacts = Artefacts(tmp_path)
    run = SimpleNamespace(recipe=load(None, {"budget.minutes": "2"}), artefacts=artefacts)
    plan = SimpleNamespace(reasons=("size tiny: as given",), reach=TEXT)
    (tmp_path / "stage1").mkdir()
    few = "Warning: stage 1 has few steps (40): raise --minutes or lower --tokens.length"
    for steps, epochs, warnings in (
        (4000, 3, []),
        (40, 3, [few]),
        (0, 0, [f"Warning: {NO_NETWORK}"]),
    ):
        (tmp_path / "stage1" / "plan.json").write_text(
            json.dumps({"stage1": {"steps": steps, "batch": 16}, "epochs": epochs, "ending": 1.0}),
            encoding="utf-8",
        )
        notes = [*plan.reasons, *warnings]
        assert report._decisions(cast(Any, run), cast(Any, plan)) == notes
    plan.reach = LINEAR  # then its own reasons say why
    assert report._decisions(cast(Any, run), cast(Any, plan)) == [*plan.reasons]
