"""The benchmark of whole runs: its page adds up what a record has, and both sides are alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tasklm.encoders.shapes import encoder_of
from tasklm.errors import RunError
from tasklm.pipeline.timeline import FLOW
from tasklm.recipe.toml import load
from tests.conftest import sentences, write_jsonl

PAGES = Path(__file__).resolve().parents[2] / "docs" / "benchmarks"


def side(wall: float, cpu: float, steps: dict[str, tuple[float, float]]) -> dict[str, Any]:
    """What one run of one side reports."""
    return {
        "wall": wall,
        "cpu": cpu,
        "load": 1.25,
        "steps": {step: {"seconds": one, "cpu": two} for step, (one, two) in steps.items()},
        "dev": 0.5,
        "test": 0.25,
        "passages": 4000,
        "versions": "bm25s 1",
        "flops": {"stage 1": 2e12, "stage 2": 1e12},
    }


def case() -> dict[str, Any]:
    """Two rounds: the first is the shorter one by the clock, the second that of the processor."""
    about = {
        "date": "2026-01-01",
        "software": "torch 2",
        "machine": "A CPU",
        "threads": 1,
        "metric": "macro_f1",
        "settings": {"train.steps": 100},
    }
    first = {
        "tasklm": side(20, 15, {"stage 1": (10, 7), "report": (6, 5)}),
        "peer": side(30, 25, {"stage 1": (27, 22)}),
    }
    second = {
        "tasklm": side(40, 12, {"stage 1": (30, 6), "report": (8, 4)}),
        "peer": side(50, 24, {"stage 1": (47, 21)}),
    }
    return {"about": about, "rounds": [first, second]}


def test_the_page_has_the_shortest_run_of_each_measure(module: Any) -> None:
    report = module("whole_run_peers.report")
    page = report.markdown({"acl_arc": case()})
    assert "| stage 1 | 10.0 | 27.0 | 6.0 | 21.0 | 2.0e12 |" in page
    assert "| report | 6.0 | – | 4.0 | – |  |" in page  # the peer writes none
    assert "| outside these | 4.0 | 3.0 | 2.0 | 3.0 |  |" in page
    assert "| **all** | 20.0 | 30.0 | 12.0 | 24.0 | 3.0e12 |" in page
    assert "| the steps that both have | 10.0 | 27.0 | 6.0 | 21.0 | 3.0e12 |" in page
    assert "**1.50 by the clock and 2.00 of the processor** for everything" in page
    assert "2.70 by the clock and 3.50 of the processor for the steps that both have" in page
    assert "tasklm 50.0 dev, 25.0 test; peer 50.0 dev, 25.0 test" in page
    assert "in turns: 1.2, 1.2, 1.2, 1.2." in page and "`--train.steps 100`" in page
    assert "selection" not in page.split("## ")[1]  # a step of neither


def test_the_page_of_the_documentation_is_that_of_its_record(module: Any) -> None:
    cases = json.loads((PAGES / "whole-run.json").read_text(encoding="utf-8"))["cases"]
    names = module("whole_run_peers.cases").CASES
    page = module("whole_run_peers.report").markdown(cases)
    assert set(cases) <= set(names)
    assert (PAGES / "whole-run.md").read_text(encoding="utf-8") == page
    for one in cases.values():
        for run in (run for both in one["rounds"] for run in both.values()):
            assert set(run["steps"]) <= set(FLOW)


def test_both_sides_are_told_every_number(module: Any, tmp_path: Path) -> None:
    cases = module("whole_run_peers.cases")
    for name in ("acl_arc", "chemprot"):
        recipe = cases.recipe_of(name, tmp_path, tmp_path, str(tmp_path), {"train.steps": 7})
        given = [recipe.select.k, recipe.select.passages, recipe.tokens.vocabulary]
        given += [recipe.train.batch, recipe.tokens.length, recipe.finetune.learning_rate]
        given += [recipe.finetune.epochs, recipe.finetune.seeds, recipe.finetune.batch]
        assert None not in given and recipe.train.steps == 7
        assert encoder_of(recipe.model, recipe.model.size) == "bert"
        assert not recipe.finetune.wide and not recipe.evaluate.compare
    with pytest.raises(RunError, match="--data"):
        cases.recipe_of("acl_arc", tmp_path, None, None, {})


def test_cpu_seconds_are_those_of_the_step_that_grew_most(
    module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, used = module("whole_run_peers.running"), iter([10.0, 14.0, 15.0])
    monkeypatch.setattr(running, "cpu_seconds", lambda: next(used))
    file = tmp_path / "clock.json"
    cpu = running._CpuOfSteps(file)
    cpu.look()  # there is no clock yet
    for steps in ({"corpus": 3.0}, {"corpus": 3.0}, {"corpus": 3.0, "tokens": 2.0, "stage 1": 0.1}):
        file.write_text(json.dumps({"steps": steps}), encoding="utf-8")
        cpu.look()
    assert cpu.steps == {"corpus": 4.0, "tokens": 1.0}


def test_passages_of_the_best_ranks_come_first(module: Any) -> None:
    pytest.importorskip("transformers")
    merge = module("whole_run_peers.reading").merge
    ranks = np.array([[5, 1, 2], [5, 3, 1]])
    assert merge(ranks, 10) == [5, 1, 3, 2] and merge(ranks, 2) == [5, 1]


def test_the_peer_runs_from_files_to_scores(
    module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    peer = module("whole_run_peers.peer")
    files = {}
    for name, seed in (("train", 1), ("dev", 2), ("test", 3)):
        rows = [{"text": text, "label": "ab"[i % 2]} for i, text in enumerate(sentences(12, seed))]
        files[f"data.{name}"] = str(write_jsonl(tmp_path / f"{name}.jsonl", rows))
    texts = [{"text": " ".join(sentences(6, seed))} for seed in range(20)]
    files["data.corpus"] = [str(write_jsonl(tmp_path / "corpus.jsonl", texts))]
    settings = {"select.passages": 5, "tokens.vocabulary": 300, "tokens.length": 32}
    settings |= {"model.layers": 1, "model.width": 64, "model.size": "tiny"}
    settings |= {"train.steps": 2, "train.batch": 4, "finetune.epochs": 1, "finetune.seeds": 2}
    settings |= {"finetune.batch": 4, "finetune.learning_rate": 1e-3, "hardware.device": "cpu"}
    recipe = load(None, {**files, **settings, "evaluate.metric": "macro_f1"})
    monkeypatch.setattr(peer.reading, "select", lambda passages, *_: passages[:5])
    monkeypatch.setattr(peer.training, "versions", lambda: "")  # bm25s may be missing
    folder = tmp_path / "peer"
    folder.mkdir()
    clock = module("whole_run_peers.clock").StepClock()
    report = peer.run(recipe, folder, torch.get_num_threads(), clock)
    assert list(report["steps"]) == [step for step in FLOW if step in report["steps"]]
    assert {"selection", "stage 1", "stage 2"} <= set(report["steps"]) and report["passages"] == 5
    assert 0 <= report["dev"] <= 1 and 0 <= report["test"] <= 1
    rows = np.load(folder / "rows.npy")
    assert rows.shape[1] == 32 and rows.size == report["text_tokens"]
