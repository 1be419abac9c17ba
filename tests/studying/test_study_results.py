"""What a study finds, by hand, and how it is shown."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from tasklm.evaluate.intervals import Difference
from tasklm.evaluate.scores import Row, Spread
from tasklm.studying.lines import terminal_table
from tasklm.studying.markdown import render_markdown
from tasklm.studying.page import render_page
from tasklm.studying.results import Cell, Outcome, axis_of, finding_of
from tests.studying.small import study

CLAIM = study().claims[0]


def difference(mean: float, below: float, above: float) -> Difference:
    return Difference(mean, mean - below, mean + above, 0.01, 1000)


def test_a_claim_is_decided_by_the_interval_of_the_mean_over_tasks() -> None:
    finding = finding_of(
        CLAIM, {"one": difference(0.04, 0.03, 0.03), "two": difference(0.02, 0.04, 0.04)}
    )
    assert finding.mean == pytest.approx(3.0)
    assert finding.high - finding.mean == pytest.approx(2.5)  # √(3² + 4²) / 2
    assert finding.verdict == "confirmed"
    assert finding.sentence() == (
        "More epochs are better: confirmed (b − a: +3.0 points, [+0.5, +5.5]; one, two)."
    )
    assert finding_of(CLAIM, {"one": difference(0.01, 0.03, 0.03)}).verdict == "undecided"
    assert finding_of(CLAIM, {"one": difference(-0.04, 0.03, 0.03)}).verdict == "not confirmed"
    assert finding_of(CLAIM, {}).sentence().endswith("not measured (b or a has no score).")
    problem = "two: run has other test labels"
    assert finding_of(CLAIM, {}, problem).sentence().endswith(f"not measured ({problem}).")
    partly = finding_of(CLAIM, {"one": difference(0.01, 0.03, 0.03)}, problem)
    assert partly.sentence().endswith(f"; one; not on {problem}).")


def cell(task: str, line: str, score: float | None, published: float | None = None) -> Cell:
    if score is None:
        return Cell(task, line, published, problem="out of memory")
    spread = Spread(score, 0.01, [score - 0.01, score + 0.01], score - 0.02, score + 0.02)
    row = Row("ours", "ours", dev=None, test=spread, flops_exact=2e12)
    return Cell(task, line, published, "macro_f1", "test", row)


def outcome(**changes: Any) -> Outcome:
    cells = [
        cell("one", "a", 0.7, 80.0),
        cell("one", "b", 0.8, 90.0),
        cell("two", "a", 0.5, 60.0),
        cell("two", "b", None),
    ]
    own = study(**changes)
    findings = [finding_of(CLAIM, {"one": difference(0.1, 0.03, 0.03)})]
    return Outcome(own, "minutes", ("one", "two"), cells, findings, axis_of(own))


def test_averages_are_over_the_same_tasks_or_as_stated() -> None:
    shown = outcome()
    a, b, theirs = shown.study.lines
    assert shown.average_of(a) == (pytest.approx(60.0), pytest.approx(70.0))
    assert shown.average_of(b) == (None, 70.0)  # stated: one task has no published score
    assert shown.average_of(theirs) == (None, None)
    assert shown.flops == 6e12


def test_the_pages_have_our_scores_the_published_ones_and_what_failed() -> None:
    shown = outcome()
    console = Console(file=io.StringIO(), width=120)
    console.print(terminal_table(shown))
    assert isinstance(console.file, io.StringIO)
    for text in (render_markdown(shown), render_page(shown), console.file.getvalue()):
        for part in ("70.0 ± 1.0", "95.5", "80.0 ± 1.0"):
            assert part in text
    for text in (render_markdown(shown), render_page(shown)):
        for part in ("More epochs are better: confirmed", "out of memory", "theirs: dear."):
            assert part in text
    (row,) = [line for line in render_markdown(shown).split("\n") if line.startswith("| a |")]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[2::2] == ["80", "60", "70.0"] and cells[5:] == ["60.0", "70.0", "2.0e12"]


def test_many_tasks_stand_below_one_another_in_a_terminal() -> None:
    rows = [{"name": "a row of several tasks"}, {"name": "b"}, {"name": "theirs"}]
    names = [f"task {number}" for number in range(9)]
    own = study(tasks=names, rows=rows, claims=[])
    cells = [cell(task, row["name"], 0.7, 80.0) for row in rows[:2] for task in names]
    console = Console(file=io.StringIO(), width=80)
    console.print(terminal_table(Outcome(own, "minutes", tuple(names), cells, [])))
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().split("\n")
    wanted = ["task 8", "a row of several tasks", "70.0 ± 1.0", "80"]
    assert any(all(part in line for part in wanted) for line in lines)
    assert sum("a row of several tasks" in line for line in lines) == 9 + 1  # and the average


def test_a_plot_has_a_line_for_each_task_series_and_source() -> None:
    rows = [
        {"name": "a", "recipe": {"select.k": 5}, "published": {"one": 80.0}, "series": "first"},
        {"name": "b", "recipe": {"select.k": 50}, "published": {"one": 90.0}, "series": "first"},
    ]
    page = render_page(outcome(rows=rows, axis="select.k"))
    assert "one first, ours" in page and "one first, published" in page and "select.k" in page
    assert 'id="plot"' not in render_page(outcome())


def test_plain_values_have_everything() -> None:
    values = outcome().to_dict()
    assert values["cells"][0]["row"] == "a" and values["cells"][0]["score"] == pytest.approx(70)
    assert values["claims"][0]["verdict"] == "confirmed"
    assert values["cells"][3]["problem"] == "out of memory"
