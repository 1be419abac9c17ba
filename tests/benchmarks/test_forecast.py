"""The benchmark of forecasts: gains by hand, gains.json as the tables have it, cases, counts, the
page, and a toy task.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from forecast_runs.cases import Case, counts, gain_cases, task_cases
from forecast_runs.records import cpu_runs, forms_in, gains_of, gpu_runs, kind_gains, powers_of
from forecast_runs.report import line, markdown
from laptop_runs.cells import Outcome
from laptop_runs.data import prepare_task
from tasklm.errors import RunError
from tasklm.forecasting.gains import Gains, Recorded, recorded_gains
from tasklm.storage.files import read_json
from tests.benchmarks.test_laptop import toy

ROOT = Path(__file__).resolve().parents[2]
BASELINES = {"majority": {"dev": 0.3, "test": 0.3}, "TF-IDF + linear": {"dev": 0.6, "test": 0.62}}
PAGE = """
| SciERC relations, macro-F1 | 60.0 | **80.0 ± 0.2** | 1.0e17 | 80.5 |
| ChemProt relations, micro-F1 | 70.0 | 80.0 ± 0.1 | 4.0e16 | **82.0** |
"""


def test_gains_of_a_cpu_are_differences_to_the_linear_model_on_test() -> None:
    both = [
        Outcome("one", "tasklm 1", test=0.61, baselines=BASELINES),
        Outcome("one", "tasklm 5", test=0.65, baselines=BASELINES),
    ]
    alone = [Outcome("two", "tasklm 5", test=0.9, baselines=BASELINES)]
    assert cpu_runs([*both, *alone]) == [{"task": "one", "gain": 3.0, "before": -1.0}]


def test_the_table_of_a_gpu_is_read() -> None:
    runs = gpu_runs(PAGE)
    assert runs["scierc_rel"] == {"linear": 60.0, "ours": 80.0, "flops": 1e17, "gain": 20.0}
    assert runs["chemprot"]["gain"] == 10.0
    with pytest.raises(RunError, match="no longer has the table"):
        gpu_runs("| SciERC |")


def test_powers_follow_from_two_budgets() -> None:
    small = {
        name: {"objectives": {"mlm": {"test": {"mean": test}}}, "settings": {"budget.flops": flops}}
        for name, test, flops in (("SciERC", 0.7, 1e15), ("ChemProt", 0.75, 1e16))
    }
    powers = powers_of(gpu_runs(PAGE), small)
    assert powers["scierc_rel"] == pytest.approx(
        math.log(2) / math.log(100), abs=1e-4
    )  # 10 points → 20 with 100 times the FLOPs
    assert powers["chemprot"] == pytest.approx(0.5, abs=1e-4)  # 5 → 10 with 4 times


def test_losses_of_runs_without_a_wide_part_count_as_nothing() -> None:
    tasks = read_json(ROOT / "docs" / "benchmarks" / "kinds.json")["tasks"]
    gains = kind_gains(tasks, [])
    assert gains["glue_mrpc"] == 0.0 and gains["glue_cola"] > 5
    assert "conll2003_ner" not in gains  # there is no linear score of tags
    linear = Outcome(
        "conll2003_ner",
        "tasklm 5",
        baselines={"majority": {"dev": 0, "test": 0}, "linear": {"dev": 0.8, "test": 0.8}},
    )
    assert kind_gains(tasks, [linear])["conll2003_ner"] == pytest.approx(
        100 * tasks["CoNLL-2003 names"]["rows"][-1]["test"]["mean"] - 80
    )


def test_gains_json_is_what_the_tables_say() -> None:
    written = read_json(ROOT / "src" / "tasklm" / "forecasting" / "gains.json")
    assert gains_of(ROOT, forms_in(written).__getitem__) == written, (
        "python benchmarks/forecast.py --refresh writes it anew"
    )


def test_cases_are_counted() -> None:
    cases = [
        Case("a", "linear", 70.0, 65.0, 75.0, 71.5, 100, 0.25),
        Case("b", "linear", 70.0, 69.0, 71.0, 71.6, 900, 0.75),
        Case("c", "gain", 1.0, 0.0, 2.0, 1.0),
    ]
    assert [case.near for case in cases] == [True, False, True]
    assert [case.covered for case in cases] == [True, False, True]
    linear, gain = counts(cases, "linear"), counts(cases, "gain")
    assert (linear.cases, linear.near, linear.covered, linear.possible) == (2, 1, 1, 1.0)
    assert (gain.cases, gain.near, gain.possible) == (1, 1, None)
    assert line(cases[1]) == "| b | 70.0 | 69.0 to 71.0 | 71.6 | +1.6 | no | no | 900 |"
    page = markdown(cases, 30)
    assert (
        "| The linear model's score on test | 2 | 1 | 1.0 | 1 |" in page and line(cases[0]) in page
    )
    assert (
        "twice" not in page.lower().split("## ")[1] and "Seconds given to each forecast: 30" in page
    )


def test_a_gain_is_forecast_without_its_own_task() -> None:
    runs = tuple(
        Recorded(name, "sentences", gain, 0.0)
        for name, gain in (("a", 1.0), ("b", 1.0), ("c", 1.0), ("d", 9.0))
    )
    cases = gain_cases(Gains({"cpu": runs, "gpu": runs}, {}, {"a": 0.1}, 2.0), "cpu", "gain")
    odd = next(case for case in cases if case.task == "d")
    assert (odd.forecast, odd.actual, odd.near, odd.covered) == (1.0, 9.0, False, False)


def test_a_toy_task_has_its_cases(tmp_path: Path) -> None:
    folder = prepare_task(toy(tmp_path / "raw" / "agnews"), tmp_path / "agnews", None, 100)
    cases = task_cases(folder, recorded_gains(), {"test": 99.0}, 20)
    assert {case.what for case in cases} == {"linear", "twice", "trained"}
    assert all(
        np.isfinite([case.forecast, case.low, case.high]).all() and case.tested == 40
        for case in cases
    )
    (trained,) = (case for case in cases if case.what == "trained")
    assert trained.actual == 99.0
