"""The benchmark of kinds: two made tasks of two kinds, what is skipped and merged, and its page."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasklm.errors import RunError
from tasklm.recipe.schema import from_dict, with_overrides
from tests.conftest import labelled, sentences, write_jsonl

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
CASES = """
[recipe]
"data.leaks" = "drop"
"tokens.length" = 32
"model.layers" = 1
"model.width" = 32
"train.batch" = 8
"select.k" = 3
"finetune.epochs" = 1
"finetune.seeds" = 1
"evaluate.bootstrap" = 100
"budget.flops" = 5e8

[tasks."A class"]
train = "classes/train.jsonl"
dev = "classes/dev.jsonl"
set = { "evaluate.metric" = "accuracy" }

[tasks."Tags & more"]
train = "tags/train.jsonl"
dev = "tags/dev.jsonl"
test = "tags/test.jsonl"
"""
Main = Callable[..., dict[str, Any]]


@pytest.fixture
def main(module: Any, run_verb_here: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Main:
    """The command on two made tasks, with its runs in this process; it returns the record of the
    tasks.
    """
    program = module("kinds")
    monkeypatch.setattr(program, "run_verb", run_verb_here)
    (tmp_path / "cases.toml").write_text(CASES, encoding="utf-8")
    for folder in ("classes", "tags"):
        (tmp_path / folder).mkdir()
    for seed, (split, count) in enumerate({"train": 60, "dev": 20, "test": 20}.items()):
        write_jsonl(tmp_path / "classes" / f"{split}.jsonl", labelled(count, seed))
        words = [sentence.split() for sentence in sentences(count, seed)]
        tagged = [
            {"tokens": some, "tags": ["LONG" if len(word) > 4 else "SHORT" for word in some]}
            for some in words
        ]
        write_jsonl(tmp_path / "tags" / f"{split}.jsonl", tagged)
    corpus = write_jsonl(
        tmp_path / "corpus.jsonl",
        [{"text": " ".join(sentences(8, 100 + seed))} for seed in range(60)],
    )

    def run(work: str, *more: str) -> dict[str, Any]:
        words = [
            "--tasks",
            str(tmp_path),
            "--cases",
            str(tmp_path / "cases.toml"),
            "--corpus",
            str(corpus),
        ]
        monkeypatch.setattr(
            sys, "argv", ["kinds.py", "--work", str(tmp_path / work), *words, *more]
        )
        program.main()
        found: dict[str, Any] = json.loads(
            (tmp_path / work / "kinds.json").read_text(encoding="utf-8")
        )["tasks"]
        return found

    return run


def test_every_task_has_its_scores_beside_the_best_baseline(
    main: Main, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = main("work")
    page = capsys.readouterr().out
    for name, folder in {"A class": "a-class", "Tags & more": "tags---more"}.items():
        rows = json.loads((tmp_path / "work" / folder / "scores.json").read_text(encoding="utf-8"))[
            "rows"
        ]
        (ours,) = (row for row in rows if row["kind"] == "ours")
        best = max(
            (row for row in rows if row["kind"] == "baseline"), key=lambda row: row["dev"]["mean"]
        )
        (line,) = (line for line in page.splitlines() if line.startswith(f"| {name} |"))
        assert (
            f"{100 * ours['dev']['mean']:.1f}" in line
            and f"| {best['name']} |" in line
            and f"{100 * best['dev']['mean']:.1f}" in line
        )
        assert found[name]["rows"] == [
            {key: row[key] for key in found[name]["rows"][0]} for row in rows
        ]
    assert (found["A class"]["kind"], found["Tags & more"]["kind"]) == ("classify", "tag")
    assert found["A class"]["examples"]["test"] == 0 and found["Tags & more"]["examples"] == {
        "train": 60,
        "dev": 20,
        "test": 20,
    }
    assert (
        "- A class: `evaluate.metric` = accuracy." in page
        and "one run at a time" in page
        and "`model.width` = 32" in page
    )
    assert sum(found["A class"]["seconds"].values()) > 0


def test_what_is_done_is_not_done_again(
    main: Main, monkeypatch: pytest.MonkeyPatch, module: Any, tmp_path: Path
) -> None:
    first = main("work", "--only", "A class")
    assert list(first) == ["A class"]

    def refuse(*words: Any) -> None:
        raise module("objective_runs.running").Failed("nothing may run")

    monkeypatch.setattr(module("kinds"), "run_verb", refuse)
    assert main("work", "--only", "A class") == first
    joined = main("other", "--merge", str(tmp_path / "work" / "kinds.json"))
    assert joined["A class"] == first["A class"] and joined["Tags & more"] == {
        "failed": "nothing may run"
    }
    assert "- Tags & more: no result (nothing may run)." in (
        tmp_path / "other" / "kinds.md"
    ).read_text(encoding="utf-8")


def test_a_name_that_no_task_has_is_told(main: Main) -> None:
    with pytest.raises(RunError, match="no task is called B; choose from A class, Tags & more"):
        main("work", "--only", "B")


def test_the_recipes_of_the_real_tasks_are_valid() -> None:
    listed = tomllib.loads((BENCHMARKS / "kinds.toml").read_text(encoding="utf-8"))
    for case in listed["tasks"].values():
        recipe = from_dict(with_overrides({}, {**listed["recipe"], **case["set"]}))
        assert recipe.budget.flops and case["train"] and case["dev"]
    assert len(listed["tasks"]) == 11
