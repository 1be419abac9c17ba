"""Whole comparisons, in this process: what is computed again and what is not, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from rich.console import Console

from tasklm.comparing import flow, processes
from tasklm.comparing.entries import Entry, entries_of
from tasklm.comparing.flow import compare
from tasklm.comparing.results import Comparison
from tasklm.contestants import hashed
from tasklm.contestants.base import CONTESTANTS, Job, Learned, Trained
from tasklm.errors import DataError, RecipeError, RunError
from tasklm.recipe.toml import load
from tasklm.tasks.base import Label
from tasklm.tasks.examples import Example
from tasklm.tracking import SILENT, Tracker
from tests.comparing.here import in_this_process
from tests.conftest import labelled, write_jsonl
from tests.contestants.jobs import KINDS, files_of


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is worked on, in this process and with few settings; "" is the measuring of latency."""
    monkeypatch.setattr(hashed, "RATES", (0.1,))
    monkeypatch.setattr(hashed, "EPOCHS", 2)
    titles: list[str] = []

    def work(values: dict[str, Any], folder: Path, threads: int) -> None:
        titles.append(values["title"])
        in_this_process(values, folder, threads)

    monkeypatch.setattr(processes, "in_a_process", work)
    return titles


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, Any]:
    """A little task of classes."""
    given: dict[str, Any] = {"hardware.threads": 1, "evaluate.bootstrap": 200}
    for seed, (split, count) in enumerate({"train": 80, "dev": 40, "test": 40}.items()):
        given[f"data.{split}"] = str(
            write_jsonl(tmp_path / f"{split}.jsonl", labelled(count, seed))
        )
    return given


def compared(keys: dict[str, Any], out: Path, *words: str, **changes: Any) -> Comparison:
    values = {**keys, **{name.replace("__", "."): value for name, value in changes.items()}}
    return compare(load(None, values), entries_of(words), out, SILENT)


def test_the_same_command_computes_nothing_and_one_more_contestant_itself_alone(
    begun: list[str], keys: dict[str, Any], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    first = compared(keys, out, "majority", "tfidf")
    assert begun == ["majority", "tfidf", ""]
    assert compared(keys, out, "majority", "tfidf") == first and len(begun) == 3
    more = compared(keys, out, "majority", "tfidf", "hashed")
    assert begun[3:] == ["hashed", ""]
    assert [one.title for one in more.results] == ["majority", "tfidf", "hashed"]
    assert [one.test for one in more.results[:2]] == [one.test for one in first.results]
    written = json.loads((out / "comparison.json").read_text(encoding="utf-8"))
    assert Comparison.from_dict(written) == more
    assert "tfidf" in (out / "comparison.html").read_text(encoding="utf-8")


def test_other_minutes_train_those_again_that_use_them_and_other_data_all(
    begun: list[str], keys: dict[str, Any], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    compared(keys, out, "tfidf", "hashed", budget__minutes=2)
    begun.clear()
    compared(keys, out, "tfidf", "hashed", budget__minutes=3)
    assert begun == ["hashed", ""]
    write_jsonl(tmp_path / "train.jsonl", labelled(81, 5))
    compared(keys, out, "tfidf", "hashed", budget__minutes=3)
    assert begun[2:] == ["tfidf", "hashed", ""]


def test_a_comparison_that_was_stopped_continues(
    begun: list[str], keys: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = processes.in_a_process

    def stopped(values: dict[str, Any], folder: Path, threads: int) -> None:
        if values["title"] == "hashed":
            raise KeyboardInterrupt
        work(values, folder, threads)

    monkeypatch.setattr(processes, "in_a_process", stopped)
    with pytest.raises(KeyboardInterrupt):
        compared(keys, tmp_path / "out", "tfidf", "hashed")
    monkeypatch.setattr(processes, "in_a_process", work)
    assert len(compared(keys, tmp_path / "out", "tfidf", "hashed").scored) == 2
    assert begun == ["tfidf", "hashed", ""]


def test_a_damaged_contestant_is_trained_again(
    begun: list[str], keys: dict[str, Any], tmp_path: Path
) -> None:
    first = compared(keys, tmp_path / "out", "tfidf")
    (tmp_path / "out" / "tfidf" / "labels.json").write_text("{}", encoding="utf-8")
    begun.clear()
    again = compared(keys, tmp_path / "out", "tfidf")
    assert begun[0] == "tfidf" and again.results[0].test == first.results[0].test


def test_a_contestant_that_fails_is_a_row_with_its_reason_and_is_tried_again(
    begun: list[str], keys: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = processes.in_a_process

    def fails(values: dict[str, Any], folder: Path, threads: int) -> None:
        if values["title"] == "hashed":
            raise RunError("there is no room.")
        work(values, folder, threads)

    monkeypatch.setattr(processes, "in_a_process", fails)
    result = compared(keys, tmp_path / "out", "tfidf", "hashed").results[1]
    assert result.problem == "there is no room." and result.score is None
    monkeypatch.setattr(processes, "in_a_process", work)
    assert not compared(keys, tmp_path / "out", "tfidf", "hashed").results[1].problem


def test_a_kind_that_cannot_be_done_is_a_row_that_says_why(
    begun: list[str], tmp_path: Path
) -> None:
    keys = {**files_of(KINDS["parse"], tmp_path), "hardware.threads": 1}
    comparison = compared(keys, tmp_path / "out", "majority", "tfidf", "hashed")
    problems = [one.problem for one in comparison.results]
    assert problems[0] == "" and "no linear model" in problems[1] and "searched for" in problems[2]
    assert comparison.machine is None  # nothing could be timed
    assert "hashed: not compared, answers of kind parse" in str(comparison)


def test_leaks_are_refused_before_anything_is_trained(
    begun: list[str], keys: dict[str, Any], tmp_path: Path
) -> None:
    rows = [*labelled(80, 0), *labelled(40, 2)[:3]]
    write_jsonl(tmp_path / "train.jsonl", rows)
    with pytest.raises(DataError, match="3 of the 40 test examples also occur in train"):
        compared(keys, tmp_path / "out", "majority")
    dropped = compared(keys, tmp_path / "out", "majority", data__leaks="drop")
    assert begun == ["majority"] and dropped.data["train"] < 83


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"several.tasks": ["a=b"]}, "compare takes one task"),
        ({"evaluate.compare": ["random"]}, "ablations are for tasklm fit"),
        ({"budget.flops": 1e12}, "contestants are given minutes"),
        ({"select.engine": "spark"}, "contestants read the corpus on this machine"),
    ],
)
def test_what_does_not_go_with_a_comparison_is_refused(
    changes: dict[str, Any], words: str, keys: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(RecipeError, match=words):
        compare(
            load(None, {**keys, **changes}), [Entry("tfidf", "tfidf")], tmp_path / "out", SILENT
        )


def test_a_folder_with_other_files_is_not_used(keys: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(RunError, match="contains files but no run"):
        compared(keys, tmp_path, "majority")


class Spy(Trained):
    """A contestant that notes what it sees."""

    is_timed: ClassVar[bool] = False
    jobs: ClassVar[list[Job]] = []
    asked_for: ClassVar[list[Example]] = []

    def learn(self, job: Job) -> Learned:
        self.jobs.append(job)
        return Learned("spying", 1)

    def load(self, job: Job) -> Spy:
        return self

    def labels(self, examples: Sequence[Example]) -> list[Label]:
        self.asked_for.extend(examples)
        return ["no"] * len(examples)


def test_contestants_see_no_label_of_test_and_their_models_none_at_all(
    begun: list[str], keys: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CONTESTANTS._entries, "spy", Spy)
    monkeypatch.setattr(Spy, "jobs", [])
    monkeypatch.setattr(Spy, "asked_for", [])
    comparison = compared(keys, tmp_path / "out", "spy", budget__minutes=7)
    (job,) = Spy.jobs
    test = [row["text"] for row in labelled(40, 2)]
    assert job.held_out["test"] == test and job.seconds == 420
    assert len(job.train) == 80 and len(job.dev) == 40
    assert not {example.text for example in (*job.train, *job.dev)} & set(test)
    assert [example.text for example in Spy.asked_for[40:]] == test  # once
    assert all(example.label is None for example in Spy.asked_for)
    assert comparison.results[0].setting == "spying"


def test_a_contestant_of_somebody_else_is_imported_by_its_process(
    begun: list[str], keys: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CONTESTANTS._entries, "spy", Spy)
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(processes, "in_a_process", lambda work, folder, threads: seen.append(work))
    with pytest.raises(RunError):  # nothing was written
        compared(keys, tmp_path / "out", "tfidf", "spy")
    assert [work["modules"] for work in seen][:2] == [[], [__name__]]


def test_progress_names_each_contestant_and_is_kept(
    begun: list[str], keys: dict[str, Any], tmp_path: Path
) -> None:
    console = Console(record=True, file=(tmp_path / "screen").open("w"), width=200)
    compare(load(None, keys), entries_of(["majority", "tfidf"]), tmp_path / "out", Tracker(console))
    text = console.export_text()
    assert "2 contestants, at most 20 min and 1 thread each" in text
    assert "contestant 2 of 2" in text and "data: train 80, dev 40, test 40 examples" in text
    assert "contestant 1 of 2" in (tmp_path / "out" / "log.txt").read_text(encoding="utf-8")


def test_scores_are_those_of_the_labels_and_without_test_dev_decides(
    begun: list[str], keys: dict[str, Any], tmp_path: Path
) -> None:
    from sklearn.metrics import f1_score

    out = tmp_path / "out"
    comparison = compared(keys, out, "majority", "tfidf")
    gold = [str(row["label"]) for row in labelled(40, 2)]
    for result in comparison.results:
        labels = json.loads((out / result.title / "labels.json").read_text(encoding="utf-8"))
        wanted = f1_score(gold, labels["test"], average="macro", zero_division=0)
        assert result.test is not None and result.test.mean == pytest.approx(wanted)
    del keys["data.test"]
    on_dev = compared(keys, tmp_path / "dev", "majority", "tfidf")
    assert on_dev.split == "dev" and on_dev.results[0].test is None
    assert on_dev.results[0].best is not None and on_dev.advice[-1].startswith("There is no test")


def test_the_threads_of_all_are_those_of_the_recipe(
    keys: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[int] = []

    def work(values: dict[str, Any], folder: Path, threads: int) -> None:
        given.append(threads)
        in_this_process(values, folder, threads)

    monkeypatch.setattr(flow.processes, "in_a_process", work)
    compared(keys, tmp_path / "out", "majority", "tfidf")
    assert given == [1, 1, 1]
