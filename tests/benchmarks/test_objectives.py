"""The benchmark of objectives: a small comparison of two, what happens to one that fails, its
processes, and its page.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasklm.errors import RecipeError, RunError
from tests.conftest import labelled, sentences, write_jsonl

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
TINY = ["--flops", "3e9", "--layers", "1", "--width", "32", "--seeds", "1", "--threads", "1"]
SETTINGS = [
    "finetune.epochs=1",
    "tokens.length=32",
    "train.batch=8",
    "select.k=3",
    "data.leaks=drop",
    "evaluate.bootstrap=100",
]
Main = Callable[..., dict[str, Any]]


@pytest.fixture
def main(module: Any, run_verb_here: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Main:
    """The command on a made task, with its runs in this process; it returns the task's record."""
    program = module("objectives")

    monkeypatch.setattr(program, "run_verb", run_verb_here)
    (tmp_path / "task").mkdir()
    for seed, (split, count) in enumerate({"train": 60, "dev": 20, "test": 20}.items()):
        with gzip.open(tmp_path / "task" / f"{split}.jsonl.gz", "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in labelled(count, seed))
    corpus = write_jsonl(
        tmp_path / "corpus.jsonl",
        [{"text": " ".join(sentences(8, 100 + seed))} for seed in range(60)],
    )
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    words = [
        "--task",
        f"Made={tmp_path / 'task'}:macro_f1",
        "--corpus",
        str(corpus),
        *TINY,
        *settings,
    ]

    def run(work: str, *more: str) -> dict[str, Any]:
        monkeypatch.setattr(
            sys, "argv", ["objectives.py", "--work", str(tmp_path / work), *words, *more]
        )
        program.main()
        found: dict[str, Any] = read(tmp_path / work / "objectives.json")["tasks"]["Made"]
        return found

    return run


def read(path: Path) -> Any:
    """The values of a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def test_objectives_see_the_same_text_and_spend_the_same_flops(
    main: Main, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = main("work", "--objectives", "mlm,electra", "--set", "train.rho1=3")
    page = capsys.readouterr().out
    for name, row in task["objectives"].items():
        folder = tmp_path / "work" / "Made" / name
        assert {
            part: read(folder / part / "artefact.json")["key"] for part in task["keys"]
        } == task["keys"]
        assert (folder / "tokens" / "tokens.bin").read_bytes() == (
            tmp_path / "work" / "Made" / "text" / "tokens" / "tokens.bin"
        ).read_bytes()
        assert (
            row["stage1"]["flops"]
            == read(folder / "stage1" / "summary.json")["flops"]
            == pytest.approx(3e9, rel=0.02)
        )
        assert row["dev"]["mean"] == read(folder / "stage2" / "seed-1" / "summary.json")["dev"]
        assert row["test"]["low"] <= row["test"]["mean"] <= row["test"]["high"]
        assert re.search(
            rf"^\| {name} \| .*\| {row['stage1']['steps']:,} \| 3 \|", page, re.MULTILINE
        )
    assert (
        task["objectives"]["electra"]["stage1"]["steps"]
        < task["objectives"]["mlm"]["stage1"]["steps"]
    )  # its generator has a cost
    assert set(task["baselines"]) == {"majority", "TF-IDF + linear"} and "| majority |" in page
    assert str(tmp_path) not in json.dumps(task)

    scores = tmp_path / "work" / "Made" / "mlm" / "scores.json"
    before = scores.stat().st_mtime_ns
    assert (
        main("work", "--objectives", "mlm,electra", "--set", "train.rho1=3") == task
        and scores.stat().st_mtime_ns == before
    )
    earlier = str(tmp_path / "work" / "objectives.json")
    assert (
        main("other", "--objectives", "mlm,electra", "--set", "train.rho1=3", "--merge", earlier)
        == task
    )
    assert not (
        tmp_path / "other" / "Made" / "mlm"
    ).exists()  # what the file holds is not done again
    with pytest.raises(RunError, match="differ in settings"):
        main("other", "--objectives", "mlm", "--set", "train.rho1=4", "--merge", earlier)


def test_one_that_fails_leaves_the_others(
    main: Main, module: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = module("objectives")
    runs = program.run_verb

    def but_electra(verb: str, folder: Path, *how: Any) -> None:
        if folder.name == "electra":
            raise module("objective_runs.running").Failed("killed")
        runs(verb, folder, *how)

    with monkeypatch.context() as broken:
        broken.setattr(program, "run_verb", but_electra)
        task = main("work", "--objectives", "electra,mlm")
    assert (
        task["objectives"]["electra"] == {"failed": "killed"}
        and task["objectives"]["mlm"]["dev"]["mean"] >= 0
    )
    assert "| electra | no result (killed) |" in capsys.readouterr().out
    with pytest.raises(RecipeError, match=r"train\.steps: this benchmark decides it"):
        main("work", "--objectives", "mlm", "--set", "train.steps=3")


@pytest.mark.parametrize(
    ("program", "limit", "said"),
    [
        (
            "echo first; echo 'error: no such key' >&2; echo '- a.b'; exit 2",
            None,
            "error: no such key - a.b",
        ),
        ('echo "$@"; exit 1', None, "-m tasklm evaluate .*/run"),
        ("exit 3", None, "status 3"),
        ("exec sleep 9", 0.3, "stopped: the time was up"),
        ("exit 0", 0.0, "not started"),
    ],
)
def test_a_failure_is_told(
    module: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    program: str,
    limit: float | None,
    said: str,
) -> None:
    running = module("objective_runs.running")
    (tmp_path / "python").write_text(f"#!/bin/sh\n{program}\n", encoding="utf-8")
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(running.Failed, match=said):
        running.run_verb("evaluate", tmp_path / "run", 1, running.Deadline(limit))


def test_the_page_says_what_must_be_known(module: Any) -> None:
    def row(dev: float, flops: float, workers: int) -> dict[str, Any]:
        spread = {"mean": dev, "sd": 0.0, "values": [dev], "low": None, "high": None}
        stage1 = {
            "flops": flops,
            "of_asked": flops / 1e15,
            "flops_6nd": 2e15,
            "steps": 1234,
            "rho1": 7,
            "tokens": 5e6,
            "seconds": 60.4,
        }
        about = {
            "date": "2026-01-01",
            "device": "GPU",
            "software": "torch 2",
            "workers": workers,
            "threads": 4,
        }
        return {
            "dev": spread,
            "test": spread,
            "stage1": {**stage1, "skipped_steps": 0},
            "about": about,
        }

    text = {"passages": 10, "tokens": 2000, "vocabulary": 300, "content": "abc"}
    task = {"metric": "micro_f1", "settings": {"budget.flops": 1e15}, "text": text, "baselines": {}}
    rows = {
        "mlm": row(0.5, 1.01e15, 4),
        "electra": row(0.6, 0.9e15, 4),
        "permutation": row(0.55, 1e15, 1),
    }
    page = module("objective_runs.report").markdown({"ChemProt": {**task, "objectives": rows}})
    assert [line.split(" | ")[0] for line in page.splitlines() if "1,234" in line] == [
        "| electra",
        "| mlm",
        "| permutation",
    ]
    assert (
        "| electra | **60.0** | 60.0 | 9e14 | 2e15 | 1,234 | 7 | 5.0M | 60 |" in page
        and "| mlm | 50.0 |" in page
    )
    assert "- electra spent 90.0 % of the FLOPs asked for." in page and "mlm spent" not in page
    assert (
        "- mlm, electra: 2026-01-01; GPU; torch 2; up to 4 runs at once" in page
        and "no fair comparison" in page
    )
    assert "- permutation: 2026-01-01; GPU; torch 2; one run at a time; 4 CPU threads each." in page
