"""The benchmark of several tasks: its files, the runs that tables need, tables of made-up scores,
and a run that was stopped.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import mannwhitneyu

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import several_tasks
from several_runs import plan, running
from several_runs.data import Cut, by_hash, metrics_of, prepare, source_of
from several_runs.report import Page
from several_runs.tables import MEAN, Strategy, corrected, differences, strategy_of
from tasklm.errors import RunError
from tasklm.recipe.toml import load
from tasklm.tasks.examples import Example

TASKS = ["cola", "stsb", "rte"]
SETTINGS = plan.Settings(Path("/w"), "texts", None, 3, ("--train.steps", "9"))


def write(file: Path, rows: Sequence[dict[str, Any]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]


def pairs(name: str, count: int, start: int = 0) -> list[dict[str, Any]]:
    numbers = range(start, start + count)
    return [
        {"text_a": f"{name} {i} one", "text_b": f"{name} {i} two", "label": "ab"[i % 2]}
        for i in numbers
    ]


def toys(folder: Path) -> Path:
    """Two tasks of which one is trained on three pairs that the other scores."""
    leak = pairs("cola", 3)
    for name, extra in (("cola", []), ("glue_rte", leak)):
        write(folder / name / "train.jsonl.gz", pairs(name, 20))
        write(folder / name / "dev.jsonl.gz", [*pairs(name, 8, 50), *extra])
        write(folder / name / "test.jsonl.gz", pairs(name, 6, 80))
    return folder


def test_files_are_cut_by_hash_and_without_what_another_task_scores(tmp_path: Path) -> None:
    data = toys(tmp_path / "data")
    assert source_of(data, "rte") == data / "glue_rte" and source_of(data, "mnli") is None
    tasks = prepare(data, ["cola", "rte"], tmp_path / "all", Cut())
    assert tasks["cola"]["dropped"] == {"own": 0, "across": 3}
    assert tasks["rte"] == {
        "examples": {"train": 20, "dev": 11, "test": 6},
        "dropped": {"own": 0, "across": 0},
    }
    train = read(data / "cola" / "train.jsonl.gz")
    assert read(tmp_path / "all" / "cola" / "train.jsonl.gz") == train[3:]
    assert prepare(data, ["cola", "rte"], tmp_path / "all", Cut()) == tasks
    with pytest.raises(RunError, match="Name another --work"):
        prepare(data, ["cola", "rte"], tmp_path / "all", Cut(labels=5))
    cut = prepare(data, ["cola", "rte"], tmp_path / "cut", Cut(labels=5, scored=4))
    assert cut["rte"]["examples"] == {"train": 5, "dev": 4, "test": 4}
    assert cut["cola"]["dropped"] == tasks["cola"]["dropped"]
    rows = read(tmp_path / "cut" / "cola" / "train.jsonl.gz")
    assert len(rows) == 5 and all(row in train[3:] for row in rows)
    with pytest.raises(RunError, match="lacks mnli"):
        prepare(data, ["cola", "mnli"], tmp_path / "none", Cut())


def test_a_test_set_without_labels_is_left_out(tmp_path: Path) -> None:
    data = toys(tmp_path / "data")
    rows = [{"text_a": row["text_a"], "text_b": row["text_b"]} for row in pairs("cola", 6, 80)]
    write(data / "cola" / "test.jsonl.gz", rows)
    tasks = prepare(data, ["cola", "rte"], tmp_path / "out", Cut())
    assert tasks["cola"]["examples"] == {"train": 17, "dev": 8, "test": 0}
    assert not (tmp_path / "out" / "cola" / "test.jsonl.gz").exists()


def test_fewer_by_hash_are_part_of_more_and_have_every_class() -> None:
    examples = [Example((f"text {i}",), "rare" if i == 40 else "usual", "f", i) for i in range(60)]
    few, more = by_hash(examples, 10), by_hash(examples, 30)
    assert set(map(id, few)) <= set(map(id, more)) and len(more) in (30, 31)
    assert {example.label for example in few} == {"rare", "usual"}
    assert [example.line for example in few] == sorted(example.line for example in few)
    other_order = by_hash(examples[::-1], 10)
    assert {example.line for example in other_order} == {example.line for example in few}
    assert by_hash(examples, None) == by_hash(examples, 99) == examples
    numbers = [Example((f"text {i}",), float(i), "f", i) for i in range(60)]
    assert len(by_hash(numbers, 10)) == 10


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("tables", [["3.1"], ["3.3"], ["3.4"], ["3.5"], list(plan.TABLES)])
def test_runs_come_after_what_they_need(tables: list[str], shared: bool) -> None:
    runs = plan.planned(tables, TASKS, shared)
    names = [run.name for run in runs]
    assert len(set(names)) == len(names) and (plan.BASE in names) is shared
    finished: set[str] = set()
    for group in plan.levels(runs):
        assert all(set(run.needs) <= finished for run in group)
        finished |= {run.name for run in group}
    assert finished == set(names)
    assert ("multi-multi" in names) is ("3.1" in tables)
    assert ("labels-half" in names) is ("3.4" in tables)
    assert ("with+cola" in names) is ("3.5" in tables)
    assert ("multi-tuned/rte" in names) is ("3.3" in tables)


def test_rte_has_company_that_there_is() -> None:
    assert plan.company(["cola", "sst2", "qqp", "mnli", "rte"]) == [
        ("with+mnli", ("rte", "mnli")),
        ("with+qqp+cola+sst2", ("rte", "qqp", "cola", "sst2")),
    ]
    assert plan.company(["rte", "sick_entail", "stsb"]) == [
        ("with+sick_entail", ("rte", "sick_entail"))
    ]
    assert plan.company(["rte", "mnli"]) == []  # these are all
    assert plan.company(["cola", "stsb"]) == []


def words_of(name: str, shared: bool) -> str:
    runs = plan.planned(["3.1", "3.4", "3.5"], TASKS, shared)
    run = next(run for run in runs if run.name == name)
    return " ".join(plan.command(run, SETTINGS))


def test_commands_begin_with_the_right_stage_1() -> None:
    assert words_of("base", True) == "train /w/base"
    start = "--train.start /w/base/stage1 --train.steps 0 --out"
    single = words_of("single/stsb", True)
    assert single.startswith("fit /w/data/stsb --data.leaks drop")
    assert "--evaluate.metric spearman" in single and "--finetune.seeds 3" in single
    assert "--train.steps 9" not in single and single.endswith(f"{start} /w/single/stsb")
    multi = words_of("multi", True)
    assert multi.startswith("fit /w/data/cola /w/data/stsb /w/data/rte ")
    assert f"--evaluate.metric {metrics_of(TASKS)}" in multi and start in multi
    assert metrics_of(TASKS) == "accuracy,cola=matthews,stsb=spearman"
    student = words_of("single-multi", True)
    assert student.startswith("distill /w/single/cola /w/single/stsb /w/single/rte ")
    assert "--corpus" not in student and start in student
    assert "--distill.labels 0.5" in words_of("labels-half", True)
    assert words_of("multi-multi", True).startswith("distill /w/multi ")
    # each with its own
    assert "--corpus texts" in words_of("multi", False)
    assert "--train.start" not in words_of("multi", False)
    assert "--train.start /w/multi/stage1" in words_of("single-multi", False)
    assert "--train.start /w/single/rte/stage1" in words_of("single-single/rte", False)
    assert "--train.start" not in words_of("with+cola", False)


def test_models_of_several_tasks_alone_have_options_of_their_own() -> None:
    extra, several = ("--train.steps", "9", "--finetune.epochs", "6"), ("--finetune.epochs", "12")
    settings = plan.Settings(Path("/w"), "texts", None, 3, extra, several)
    for run in plan.planned(["3.1", "3.4", "3.5"], TASKS, True)[1:]:
        words = plan.command(run, settings)
        at = [words[place + 1] for place, word in enumerate(words) if word == "--finetune.epochs"]
        assert at == (["12"] if len(run.tasks) > 1 else ["6"]), run.name
    base = plan.base_recipe(plan.Planned(plan.BASE, ("cola", "rte")), settings, {})
    assert base.finetune.epochs is None
    page = Page(record(["3.1"]) | {"settings": {**record(["3.1"])["settings"], "several": "-x 1"}})
    assert "Of models of several tasks alone: `-x 1`." in page.markdown()


def test_the_shared_stage_1_reads_no_labels(tmp_path: Path) -> None:
    settings = plan.Settings(tmp_path, "texts", None, 3, ())
    options = {"train.steps": "9", "train.rho2": "20"}
    recipe = plan.base_recipe(plan.Planned(plan.BASE, ("cola", "rte")), settings, options)
    assert recipe.train.rho1 == 1_000_000 and recipe.train.rho2 == 1e6
    assert recipe.train.steps == 9 and len(recipe.several.tasks) == 2
    assert recipe.data.leaks == "drop" and recipe.data.corpus == ("texts",)


def test_a_model_of_all_tasks_is_tuned_at_a_tenth_of_its_rate(tmp_path: Path) -> None:
    folder = tmp_path / "multi"
    (folder / "model").mkdir(parents=True)
    (folder / "model" / "config.json").write_text(
        '{"encoder": "bert", "shape": {"width": 256}}', encoding="utf-8"
    )
    (folder / "recipe.toml").write_text("[train]\nsteps = 3\n", encoding="utf-8")
    run = next(run for run in plan.planned(["3.3"], TASKS, True) if run.name == "multi-tuned/rte")
    settings = plan.Settings(tmp_path, "texts", None, 3, ())
    words = " ".join(plan.command(run, settings))
    assert f"--finetune.learning_rate 3e-05 --train.start {folder}/model" in words
    (folder / "recipe.toml").write_text("[finetune]\nlearning_rate = 2e-4\n", encoding="utf-8")
    assert plan.rate_of(folder) == load(folder / "recipe.toml").finetune.learning_rate == 2e-4


SINGLE = Strategy("Single", {"a": [1.0, 2.0, 9.0, 3.0], "b": [10.0, 10.0, 10.0, 10.0]})
BETTER = Strategy("Better", {"a": [21.0, 12.0, 19.0, 13.0], "b": [10.0, 11.0, 9.0, 10.5]})


def test_medians_are_over_seeds_and_means_of_each_seed() -> None:
    assert SINGLE.median("a") == 2.5 and SINGLE.averages == [5.5, 6.0, 9.5, 6.5]
    assert SINGLE.median(MEAN) == 6.25


def test_p_values_are_of_the_seeds_and_corrected_over_tasks() -> None:
    tested = differences(BETTER, SINGLE)
    assert list(tested) == [MEAN, "a", "b"]
    assert tested["a"].points == pytest.approx(16.0 - 2.5)
    p_a = mannwhitneyu(BETTER.values["a"], SINGLE.values["a"]).pvalue
    p_b = mannwhitneyu(BETTER.values["b"], SINGLE.values["b"]).pvalue
    assert p_a < p_b
    assert tested["a"].p == pytest.approx(min(1, 2 * p_a))
    assert tested["b"].p == pytest.approx(max(min(1, 2 * p_a), p_b))
    mean = mannwhitneyu(BETTER.averages, SINGLE.averages).pvalue
    assert tested[MEAN].p == pytest.approx(mean)
    tests = {"one": tested[MEAN], "two": tested["b"]}
    assert corrected(tests)["one"].p == pytest.approx(min(1, 2 * mean))


def test_few_seeds_have_no_test() -> None:
    one, two = Strategy("x", {"a": [1.0, 2.0]}), Strategy("y", {"a": [3.0, 4.0]})
    assert all(value.p is None for value in differences(one, two).values())
    assert corrected(differences(one, two))["a"].points == -2.0


def scored(shift: float, tasks: Sequence[str] = TASKS, test: bool = True) -> dict[str, Any]:
    first = {task: 50 + 10 * TASKS.index(task) + shift for task in tasks}
    values: dict[str, Any] = {
        task: {"metric": "accuracy", "dev": [first[task] + seed for seed in range(4)]}
        for task in tasks
    }
    for task, value in values.items():
        if test and task != "cola":
            value["test"] = [score - 5 for score in value["dev"]]
    return values


def record(tables: Sequence[str], **more: Any) -> dict[str, Any]:
    runs = {run.name: run for run in plan.planned(tables, TASKS, True) if run.name != plan.BASE}
    shifts = {"multi": 5.0, "single-multi": 10.0, "labels-never": 3.0, "with+cola": 2.0}
    settings = {"tasks": TASKS, "tables": list(tables), "labels": 40, "scored": None, "seeds": 4}
    settings |= {"stage1": "shared", "recipe": "some.toml", "extra": "--train.steps 3"}
    about = {
        "examples": {"train": 1000, "dev": 9, "test": 0},
        "dropped": {"own": 2, "across": 31},
    }
    values = {
        "settings": settings,
        "data": dict.fromkeys(TASKS, about),
        "runs": {name: scored(shifts.get(name, 0.0), run.tasks) for name, run in runs.items()},
        "minutes": {"multi": 1.25},
        "failed": [],
    }
    return {**values, **more}


def test_a_strategy_of_single_runs_is_joined() -> None:
    runs = [scored(0.0, [task]) for task in TASKS]
    joined = strategy_of("Single", runs, TASKS, "test")
    assert joined is not None and list(joined.values) == ["stsb", "rte"]
    assert strategy_of("Single", [scored(0.0, TASKS, False)], TASKS, "test") is None


def test_the_page_has_the_tables() -> None:
    page = Page(record(["3.1", "3.3", "3.4", "3.5"])).markdown()
    assert "| cola | Matthews correlation | 1,000 | 9 | 0 | 2 | 31 |" in page
    assert "| Single | 61.5 | 51.5 | 61.5 | 71.5 |" in page
    assert "| Single→Multi | 71.5 | 61.5 | 71.5 | 81.5 |" in page
    assert "| Single→Multi − Multi | +5.0 (p 0.029) | +5.0 (p 0.086) |" in page
    assert "| Single | 61.5 | 56.5 | 66.5 |" in page  # on test, which cola does not have
    assert "| Single | 84.0 | 60.6 | 93.2 |" in page  # published
    # the best seed is 1.5 points above the median; cola has no test
    assert "| Multi, dev | -6.5 | -6.5 | -6.5 | -6.5 |" in page
    assert "| Multi, test | -6.5 |  | -6.5 | -6.5 |" in page
    assert "| teachers alone: λ = 0 | 64.5 | -7.0 (p 0.086) | -0.5 |" in page
    assert "| alone | 71.5 |  | 70.0 |" in page
    assert "| cola | 73.5 | +2.0" in page
    assert "| all | 81.5 | +10.0" in page
    assert "40 examples were used, those with the lowest hashes" in page
    assert "`some.toml`" in page and "multi 1.2" in page and "No result" not in page


def test_the_page_has_the_epoch_that_is_best_for_each_task() -> None:
    whole = record(["3.1"])
    for task, own in whole["runs"]["multi"].items():
        own[running.EACH] = [one + (4.0 if task == "cola" else 1.0) for one in own["dev"]]
    page = Page(whole).markdown()
    assert "| Multi, best epoch of each task | 68.5 | 60.5 | 67.5 | 77.5 |" in page
    assert "Single→Multi, best epoch" not in page


def test_a_page_of_few_runs_has_what_there_is() -> None:
    whole = record(["3.1", "3.4", "3.5"])
    runs = {name: one for name, one in whole["runs"].items() if name.startswith("single/")}
    page = Page({**whole, "runs": runs, "failed": ["multi: no memory"]}).markdown()
    assert "| Single | 61.5 |" in page and "− Single |" not in page
    assert "## Table 3.4" not in page and "## Table 3.5" not in page
    assert "- No result: multi: no memory." in page
    empty = Page({**whole, "runs": {}}).markdown()
    assert "Published" in empty and "| Single | 61.5" not in empty


def test_scores_are_read_from_a_run(tmp_path: Path) -> None:
    dev, test = {"values": [0.5, 0.25]}, {"values": [0.125, 1.0]}
    tasks = [{"name": "rte", "metric": "accuracy", "dev": dev, "test": None}]
    rows = [
        {"kind": "baseline", "dev": test, "test": None, "tasks": []},
        {"kind": "ours", "dev": dev, "test": test, "tasks": tasks},
    ]
    run = plan.Planned("multi", ("rte", "cola"))
    (tmp_path / "multi").mkdir()
    file = tmp_path / "multi" / "scores.json"
    file.write_text(json.dumps({"metric": "mean", "rows": rows}), encoding="utf-8")
    expected: dict[str, Any] = {"rte": {"metric": "accuracy", "dev": [50.0, 25.0]}}
    assert running.scores_of(run, tmp_path) == expected
    for seed, scores in ((1, [0.25, 0.75, 0.5]), (2, [0.375, 0.25])):  # of rte, epoch by epoch
        folder = tmp_path / "multi" / "stage2" / f"seed-{seed}"
        folder.mkdir(parents=True)
        curve = [{"step": 1, "task": 9.0}, *({"step": 2, "dev: rte": one} for one in scores)]
        (folder / "curve.json").write_text(json.dumps(curve), encoding="utf-8")
        (folder / "summary.json").write_text("{}", encoding="utf-8")
    expected["rte"][running.EACH] = [75.0, 37.5]
    assert running.scores_of(run, tmp_path) == expected
    rows[1]["tasks"] = []
    file.write_text(json.dumps({"metric": "f1", "rows": rows}), encoding="utf-8")
    alone = running.scores_of(plan.Planned("multi", ("cola",)), tmp_path)
    assert alone == {"cola": {"metric": "f1", "dev": [50.0, 25.0], "test": [12.5, 100.0]}}


def test_a_run_that_was_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, begun = toys(tmp_path / "data"), list[str]()

    def run(run: plan.Planned, settings: plan.Settings, end: float) -> None:
        if running.is_done(run, settings.work):
            return
        begun.append(run.name)
        if run.name == "single/rte" and begun.count(run.name) == 1:
            raise RunError("no memory")
        last = "stage1/summary.json" if run.name == plan.BASE else "scores.json"
        file = settings.work / run.name / last
        file.parent.mkdir(parents=True, exist_ok=True)
        ours = {"kind": "ours", "dev": {"values": [0.5] * 3}, "test": None, "tasks": []}
        if len(run.tasks) > 1:
            ours["tasks"] = [{"name": name, "metric": "f1", **ours} for name in run.tasks]
        file.write_text(json.dumps({"metric": "f1", "rows": [ours]}), encoding="utf-8")

    def main(*more: str) -> dict[str, Any]:
        words = ["--data", str(data), "--corpus", "texts", "--work", str(tmp_path / "work")]
        monkeypatch.setattr(sys, "argv", ["several_tasks.py", *words, "--tables", "3.1", *more])
        several_tasks.main()
        file = tmp_path / "work" / "several-tasks.json"
        values: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return values

    monkeypatch.setattr(running, "run_one", run)
    first = main()
    assert begun == [
        "base",
        "single/cola",
        "single/rte",
        "multi",
        "single-single/cola",
        "multi-multi",
    ]
    assert first["failed"] == [
        "single/rte: no memory",
        "single-multi: single/rte has no result",
        "single-single/rte: single/rte has no result",
    ]
    again = main()
    assert begun[6:] == ["single/rte", "single-multi", "single-single/rte"]
    assert not again["failed"] and set(again["runs"]) > {"single-multi", "single-single/rte"}
    main()
    assert len(begun) == 9
    for other in (("--seeds", "7"), ("--several=--finetune.epochs 9",)):
        with pytest.raises(SystemExit, match="other settings"):
            main(*other)
    for wrong in ("--model.width 9", "--finetune.epochs"):
        with pytest.raises(SystemExit):
            main(f"--several={wrong}")


def test_no_run_begins_after_the_time_is_up(tmp_path: Path) -> None:
    runs = plan.planned(["3.1"], TASKS, True)
    settings = plan.Settings(tmp_path, "texts", None, 3, ())
    failed = running.run_all(runs, settings, 2, -1.0)
    assert failed[0] == "base: not begun: the time was up" and len(failed) == len(runs)


def test_a_run_that_begins_with_another_keeps_the_recipe_s_fine_tuning(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("[model]\nwidth = 64\n[finetune]\nepochs = 4\naverage = 0.9\n")
    assert plan.finetuning_of(recipe) == ["--finetune.epochs", "4", "--finetune.average", "0.9"]
    extra = ("--model.width", "64", "--finetune.batch", "8", "--train.steps", "9")
    assert plan.for_stage2(extra) == ["--finetune.batch", "8"]
