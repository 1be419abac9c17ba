"""Where the time of a run went: each step has what the clock counted for it, also over several
processes.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tasklm.artifacts import Artefacts
from tasklm.pipeline.context import Run
from tasklm.pipeline.timeline import (
    DATA,
    FLOW,
    REPORT,
    SCORES,
    STAGE1,
    STAGE2,
    long_steps,
    timeline_text,
    up_to_report,
)
from tasklm.recipe.schema import Recipe
from tasklm.report.report import ReportParts, render
from tasklm.storage.files import read_json
from tasklm.tracking import Tracker


class Hands:
    """A clock that shows what it is set to."""

    def __init__(self) -> None:
        self.shows = 0.0

    def seconds(self) -> float:
        return self.shows

    def restart(self) -> None:
        self.shows = 0.0


class Words:
    """A sink that keeps messages."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def event(self, name: str, values: dict[str, Any]) -> None:
        self.texts.append(str(values.get("text")))


def run_in(folder: Path, words: Words | None = None, first: bool = True) -> tuple[Run, Hands]:
    """A run as a new process opens it."""
    hands, artefacts = Hands(), Artefacts(folder)
    machine = cast(Any, SimpleNamespace(ranks=SimpleNamespace(first=first)))
    tracker = Tracker(sinks=[words] if words else [])
    return Run(Recipe(), artefacts, artefacts, machine, tracker, cast(Any, hands)), hands


def spend(run: Run, hands: Hands, step: str, seconds: float, ended: bool = False) -> None:
    hands.shows = seconds
    run.keep_clock(step, ended)


def test_each_step_has_the_time_since_the_one_before(tmp_path: Path) -> None:
    run, hands = run_in(tmp_path)
    spend(run, hands, DATA, 2.0)
    spend(run, hands, STAGE1, 30.5)
    again, later = run_in(tmp_path)  # killed, and continued
    spend(again, later, DATA, 1.0)
    spend(again, later, STAGE2, 10.0)
    assert again.timeline() == {DATA: 3.0, STAGE1: 30.5, STAGE2: 10.0}
    assert again.seconds() == pytest.approx(43.5)
    assert read_json(tmp_path / "clock.json")["seconds"] == pytest.approx(43.5)


def test_a_clock_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    (tmp_path / "clock.json").write_text('{"seconds": 100.0}', encoding="utf-8")
    run, hands = run_in(tmp_path)
    spend(run, hands, STAGE2, 5.0)
    assert (run.seconds(), run.timeline()) == (105.0, {STAGE2: 5.0})


@pytest.mark.parametrize(
    "content", ["[1]", '{"seconds": 1, "steps": 3}', '{"seconds": 1, "steps": {"a": "b"}}', "{"]
)
def test_a_damaged_clock_counts_anew_and_says_so(tmp_path: Path, content: str) -> None:
    (tmp_path / "clock.json").write_text(content, encoding="utf-8")
    words = Words()
    run, hands = run_in(tmp_path, words)
    spend(run, hands, STAGE1, 7.0)
    assert run.timeline() == {STAGE1: 7.0}
    assert "is damaged: earlier time on this run is not counted" in words.texts[0]


def build(run: Run, name: str) -> None:
    run.artefacts.build(name, "key", lambda folder: None)


def test_a_process_that_finds_everything_built_leaves_no_trace(tmp_path: Path) -> None:
    run, hands = run_in(tmp_path)
    run.watch_network()
    build(run, "wide")
    spend(run, hands, DATA, 2.0)
    spend(run, hands, SCORES, 1.0, ended=True)
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.json")}
    again, later = run_in(tmp_path)
    again.watch_network()
    build(again, "wide")
    spend(again, later, DATA, 3.0)
    assert again.timeline()[DATA] == 5.0  # it may yet have to build something
    spend(again, later, SCORES, 3.0, ended=True)
    spend(again, later, REPORT, 3.0, ended=True)
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.json")} == before
    third, hands = run_in(tmp_path)
    build(third, "stage1")
    spend(third, hands, SCORES, 4.0, ended=True)
    assert third.timeline() == {DATA: 2.0, SCORES: 5.0}


def test_the_report_leaves_out_its_own_time() -> None:
    assert up_to_report({DATA: 2.0, REPORT: 5.0}) == {DATA: 2.0}


def test_one_process_of_several_counts(tmp_path: Path) -> None:
    run, hands = run_in(tmp_path, first=False)
    spend(run, hands, STAGE1, 7.0)
    assert not (tmp_path / "clock.json").exists()


def test_short_steps_are_left_out_and_the_others_in_the_order_of_the_flow() -> None:
    steps = {STAGE2: 61.0, DATA: 0.2, STAGE1: 5.25, "of another version": 9.0}
    assert list(long_steps(steps)) == [STAGE1, STAGE2]
    assert timeline_text(steps) == "stage 1 5.2 s · stage 2 1 min 1 s"
    assert len(set(FLOW)) == len(FLOW)


def test_the_report_shows_each_step_with_its_share_and_the_sum() -> None:
    page = render(ReportParts(timeline={DATA: 10.0, STAGE1: 50.0}))
    part = page.split("Where the time went</h2>")[1].split("</section>")[0]
    assert "start and data" in part and "width:20.0%" in part and "width:100.0%" in part
    assert "1 min in all, interruptions left out." in part
    assert "Where the time went" not in render(ReportParts())
