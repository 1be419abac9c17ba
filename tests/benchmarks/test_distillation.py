"""The benchmark of distillation: shares of gains by hand, scores read from runs, its page, and the
commands of its runs, which go on where they were stopped.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import distillation
from distillation_runs.page import Page
from distillation_runs.results import Interval, Result, kept_share, result_of
from tasklm.evaluate.intervals import Predicted, statistics_of
from tasklm.recipe.schema import Recipe
from tasklm.recipe.toml import dump
from tasklm.tasks.classify import Classify
from tests.conftest import write_jsonl

TASK = Classify(["x", "y"])
GOLD = ["x", "y"] * 100
SETTINGS = {"seeds": 2, "students": 2, "passages": 3000, "recipe": "some.toml", "extra": ""}


def predicted(wrong: int) -> list[str]:
    """Labels of which the first so many are wrong."""
    return [("y" if one == "x" else "x") if n < wrong else one for n, one in enumerate(GOLD)]


def statistics(*wrong: int) -> Any:
    metric = TASK.metric("accuracy")
    return statistics_of(metric, Predicted(GOLD, [predicted(one) for one in wrong]))


def test_the_share_of_the_gain_is_that_of_the_means() -> None:
    metric = TASK.metric("accuracy")
    single, together, student = statistics(100, 80), statistics(30), statistics(60, 50)
    share = kept_share(metric, single, together, student)
    # one seed 55 %, all 85 %, the student 72.5 %
    assert share is not None and share.value == pytest.approx(17.5 / 30)
    assert 0.2 < share.low < share.value < share.high < 0.95
    exact = kept_share(metric, single, together, together)
    assert exact is not None and (exact.value, exact.low, exact.high) == (1.0, 1.0, 1.0)
    assert kept_share(metric, together, single, student) is None  # together they are worse
    assert kept_share(metric, statistics(31), statistics(30), student) is None  # by luck


def written(folder: Path, split: str = "test") -> Path:
    """The files of finished runs that the results are read from."""
    rows = [{"text": f"text {n}", "label": label} for n, label in enumerate(GOLD)]
    folder.mkdir(exist_ok=True)
    train = write_jsonl(folder / "train.jsonl", rows)
    data = {"train": str(train), "dev": str(train), "leaks": "keep", "kind": "classify"}
    if split == "test":
        data["test"] = str(train)
    runs = {
        "teacher/predictions": (100, 80),
        "teacher/ensemble-predictions": (30,),
        "student/predictions": (60, 50),
        "small/predictions": (70, 90),
        "small/compare/no-teacher/predictions": (110, 90),
    }
    for name, seeds in runs.items():
        (folder / name).mkdir(parents=True)
        for number, wrong in enumerate(seeds, 1):
            answers = json.dumps([{"label": one} for one in predicted(wrong)])
            (folder / name / f"{split}-{number}.json").write_text(answers, encoding="utf-8")
    teacher = folder / "teacher"
    (teacher / "predictions" / "task-1.json").write_text(json.dumps(TASK.to_dict()))
    (teacher / "scores.json").write_text(json.dumps({"metric": "accuracy"}), encoding="utf-8")
    (teacher / "recipe.toml").write_text(dump(Recipe().changed(data=data)), encoding="utf-8")
    for name, width in (("teacher", 64), ("small", 32)):
        (folder / name / "stage1").mkdir()
        shape = {"shape": {"layers": 4, "width": width}}
        (folder / name / "stage1" / "config.json").write_text(json.dumps(shape), encoding="utf-8")
    return folder


@pytest.mark.parametrize("split", ["test", "dev"])
def test_scores_are_read_from_the_runs(split: str, tmp_path: Path) -> None:
    result = result_of("toys", written(tmp_path, split))
    assert (result.task, result.split, result.examples) == ("toys", split, 200)
    single, together, student = result.single, result.ensemble, result.student
    assert [one.value for one in (single, together, student)] == pytest.approx([55, 85, 72.5])
    gains = [result.gain.value, result.students_gain.value]
    assert gains == pytest.approx([30, 17.5])
    assert result.gain.low < 30 < result.gain.high and result.share is not None
    assert (result.shape, result.small_shape) == ("4 × 64", "4 × 32")
    assert result.small_gain.value == pytest.approx(10.0) and 0 < result.p < 1


def interval(value: float) -> Interval:
    return Interval(value, value - 1, value + 1)


def result(task: str, gain: float, share: Interval | None) -> Result:
    numbers = [interval(value) for value in (80, 80 + gain, 80 + gain / 2, gain, gain / 2)]
    small = [interval(value) for value in (60, 63, 3)]
    return Result(
        task, "accuracy", "test", 1500, *numbers, share, "12 × 512", "12 × 256", *small, 0.04
    )


def test_the_page_has_both_tables_and_means_over_tasks() -> None:
    results = [result("one", 2.0, Interval(0.5, 0.2, 0.9)), result("two", 0.0, None)]
    page = Page(results, SETTINGS).markdown()
    assert (
        "| one | accuracy | 1,500 of test | 80.0 (79.0 to 81.0) | 82.0 (81.0 to 83.0) "
        "| +2.0 (+1.0 to +3.0) | 81.0 (80.0 to 82.0) | +1.0 (+0.0 to +2.0) | 50% (20% to 90%) |"
    ) in page
    assert "| +0.0 (-1.0 to +1.0) | – |" in page and "2 seeds together" in page
    assert "the seeds gain +1.0, their student +0.5: 50% of it is kept." in page
    assert (
        "| two | 12 × 512 | 12 × 256 | 60.0 (59.0 to 61.0) | 63.0 (62.0 to 64.0) "
        "| +3.0 (+2.0 to +4.0) | 0.040 |"
    ) in page
    assert "teachers bring the small student +3.0" in page and "`some.toml`" in page
    assert "from 3,000 selected passages" in page


def test_runs_follow_one_another_and_are_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, begun = tmp_path / "data" / "toys", list[list[str]]()
    data.mkdir(parents=True)
    for split in ("train", "dev"):
        (data / f"{split}.jsonl.gz").write_bytes(b"")
    finished = written(tmp_path / "finished", "dev")

    def run(words: list[str], **_: Any) -> Any:
        begun.append(words[3:])
        out = Path(words[words.index("--out") + 1])
        for file in (finished / out.name).rglob("*.*"):
            target = out / file.relative_to(finished / out.name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes())
        scores = {"metric": "accuracy", "verdict": "good"}
        (out / "scores.json").write_text(json.dumps(scores), encoding="utf-8")
        return SimpleNamespace(returncode=int(out.name == "small" and len(begun) == 3))

    monkeypatch.setattr(distillation.subprocess, "run", run)

    def main(*more: str) -> None:
        words = ["--data", str(tmp_path / "data"), "--corpus", "texts", "--tasks", "toys"]
        words += ["--work", str(tmp_path / "bench"), "--seeds", "2", *more]
        monkeypatch.setattr(sys, "argv", ["distillation.py", *words])
        distillation.main()

    with pytest.raises(SystemExit, match="ended with status 1"):
        main()
    (tmp_path / "bench" / "toys" / "small" / "scores.json").unlink()
    main()
    assert [words[0] for words in begun] == ["fit", "distill", "distill", "distill"]
    first, same, small = (" ".join(words) for words in begun[:3])
    assert "--finetune.seeds 2 --evaluate.ensemble true" in first and "--test" not in first
    assert f"--train.start {tmp_path}/bench/toys/teacher/stage1 --train.steps 0" in same
    assert "--distill.passages 0" in same and "--distill.passages 0" in small
    assert "--model.layers 4 --model.width 32" in small and "--compare no-teacher" in small
    record = json.loads((tmp_path / "bench" / "distillation.json").read_text(encoding="utf-8"))
    assert record["tasks"][0]["gain"]["value"] == pytest.approx(30)
    with pytest.raises(SystemExit, match="other settings"):
        main("--students", "7")
    with pytest.raises(SystemExit, match="is missing"):
        main("--tasks", "others")
