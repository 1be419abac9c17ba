"""The command line and Python's `compare`: the same comparison, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import tasklm
from tasklm.cli.app import app
from tasklm.comparing import processes
from tasklm.comparing.results import Comparison
from tasklm.contestants import tasklm as ours
from tasklm.errors import RecipeError
from tests.comparing.here import in_this_process
from tests.conftest import labelled, write_jsonl
from tests.contestants.jobs import job_of


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A little task in the folder where commands are given; their work is done in this process."""
    monkeypatch.setattr(processes, "in_a_process", in_this_process)
    monkeypatch.chdir(tmp_path)
    for seed, (split, count) in enumerate({"train": 80, "dev": 40, "test": 40}.items()):
        write_jsonl(tmp_path / f"{split}.jsonl", labelled(count, seed))


def command(*words: str) -> Result:
    given = ["compare", "train.jsonl", "--dev", "dev.jsonl", "--test", "test.jsonl"]
    rest = ["--hardware.threads", "1", "--evaluate.bootstrap", "200", *words]
    return CliRunner().invoke(app, [*given, *rest])


def test_the_command_prints_the_table_and_with_json_the_comparison_alone() -> None:
    shown = command("--with", "majority", "--with", "tfidf", "--minutes", "3")
    assert shown.exit_code == 0, shown.output
    for words in ("contestant", "tfidf has the highest score", "compare/comparison.html"):
        assert words in shown.output
    printed = command("--with", "majority,tfidf", "--minutes", "3", "--json")
    (line,) = printed.stdout.splitlines()
    comparison = Comparison.from_dict(json.loads(line))
    assert comparison.picks["highest score"] == "tfidf" and comparison.minutes == 3
    assert json.loads(Path("compare/comparison.json").read_text("utf-8")) == json.loads(line)


def test_python_continues_what_the_command_has_begun() -> None:
    assert command("--with", "tfidf", "--out", "both").exit_code == 0
    before = Path("both/tfidf/outcome.json").stat().st_mtime_ns
    comparison = tasklm.compare(
        "train.jsonl",
        dev="dev.jsonl",
        test="test.jsonl",
        contestants=["tfidf", "majority"],
        out="both",
        settings={"hardware.threads": 1, "evaluate.bootstrap": 200},
    )
    assert [one.title for one in comparison.results] == ["tfidf", "majority"]
    assert Path("both/tfidf/outcome.json").stat().st_mtime_ns == before
    assert "tfidf has the highest score" in str(comparison)


def test_a_wrong_contestant_is_refused_before_a_folder_is_made() -> None:
    refused = command("--with", "tfdif")
    assert refused.exit_code != 0 and not Path("compare").exists()
    assert isinstance(refused.exception, RecipeError)
    assert "did you mean tfidf" in str(refused.exception).replace("'", "")


def test_an_interrupt_says_how_to_continue(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(processes, "in_a_process", interrupted)
    stopped = command("--with", "tfidf")
    assert stopped.exit_code == 130 and "run the same command to continue" in stopped.output


def test_a_run_that_was_begun_is_continued_for_the_same_key_alone(tmp_path: Path) -> None:
    job = job_of("classify", tmp_path / "job", key="a")
    half_done = job.runs / "stage1.partial"
    half_done.mkdir(parents=True)
    ours._begin(job)  # nobody knows what it was begun for
    assert not half_done.exists()
    half_done.mkdir()
    ours._begin(job)
    assert half_done.exists()
    ours._begin(job_of("classify", tmp_path / "other", key="b", runs=job.runs))
    assert not half_done.exists()
