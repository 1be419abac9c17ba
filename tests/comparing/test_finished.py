"""Models of tasklm as contestants: trained now, trained before, exported."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from tasklm.comparing import processes
from tasklm.comparing.entries import entries_of
from tasklm.comparing.flow import compare
from tasklm.comparing.results import Comparison
from tasklm.evaluate.scores import from_dict
from tasklm.export.exporting import export
from tasklm.pipeline import flow as pipeline
from tasklm.recipe.toml import load
from tasklm.run_folder import SCORES
from tasklm.storage.files import read_json
from tasklm.tracking import SILENT
from tests.comparing.here import in_this_process
from tests.conftest import labelled, sentences, write_jsonl
from tests.docs.small import keep_small


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A little task with a corpus; trainings are small and in this process."""
    keep_small(monkeypatch)
    monkeypatch.setattr(processes, "in_a_process", in_this_process)
    given: dict[str, Any] = {"hardware.threads": 1, "evaluate.bootstrap": 200}
    for seed, (split, count) in enumerate({"train": 60, "dev": 30, "test": 30}.items()):
        given[f"data.{split}"] = str(
            write_jsonl(tmp_path / f"{split}.jsonl", labelled(count, seed))
        )
    texts = [{"text": " ".join(sentences(4, 100 * number))} for number in range(40)]
    given["data.corpus"] = [str(write_jsonl(tmp_path / "corpus.jsonl", texts))]
    return given


def compared(keys: dict[str, Any], out: Path, *words: str) -> Comparison:
    return compare(load(None, keys), entries_of(words), out, SILENT)


def test_tasklm_trains_in_a_run_of_its_own_and_is_compared_as_run_and_as_export(
    keys: dict[str, Any], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    first = compared(keys, out, "tasklm", "tfidf")
    run = out / "runs" / "tasklm"
    ours = from_dict(read_json(run / SCORES)).ours
    own = first.result("tasklm")
    assert ours is not None and ours.test is not None and own.test is not None
    assert own.test.mean == pytest.approx(ours.test.mean)  # the model that ships scores as the run
    assert own.cost.flops == ours.flops_exact > 0 and own.cost.reads_text
    assert own.cost.size > 1000 and first.result("tfidf").ours is not None
    exported = tmp_path / "exported"
    if importlib.util.find_spec("onnxruntime") is None:
        pytest.skip("onnxruntime is not installed: EXPORTS ARE NOT COMPARED")
    export(run, "onnx", exported)
    words = ("tasklm", f"run={run}", f"onnx={exported}")
    together = compared(keys, out, *words)
    before, other = together.result("run tasklm"), together.result("onnx exported")
    assert before.test == own.test and other.test == own.test
    assert before.cost.seconds > 0 and before.cost.memory == 0 and not before.note
    assert "may have seen the test examples" in other.note and before.latency is not None


def test_a_run_that_has_seen_the_test_examples_is_marked(
    keys: dict[str, Any], tmp_path: Path
) -> None:
    seen = {**keys, "data.train": keys["data.test"], "data.test": keys["data.train"]}
    pipeline.fit(load(None, seen), tmp_path / "seen", SILENT)
    comparison = compared(keys, tmp_path / "out", f"run={tmp_path / 'seen'}")
    note = comparison.results[0].note
    assert note == "it was trained on texts that are scored here: 30 of test"
    alone = compared(keys, tmp_path / "out", f"run={tmp_path / 'seen' / 'model'}").results[0]
    assert alone.note == note  # a run's own folder is known as such


def test_a_model_of_other_labels_is_a_row_that_says_so(
    keys: dict[str, Any], tmp_path: Path
) -> None:
    pipeline.fit(load(None, keys), tmp_path / "run", SILENT)
    for split in ("train", "dev", "test"):
        file = Path(keys[f"data.{split}"])
        file.write_text(file.read_text(encoding="utf-8").replace('"yes"', '"perhaps"'), "utf-8")
    comparison = compared(keys, tmp_path / "out", f"run={tmp_path / 'run'}", "majority")
    assert "is a model of another task (classify, 2 labels)" in comparison.results[0].problem
