"""A study, top to bottom: its runs are trained, several at once; their scores stand beside the
published ones on a page.

Runs share what they have in common (selection, tokens, stage 1), and the same command goes on where
it was stopped. On several machines with a common folder each takes a part of the runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

from tasklm.device.machine import set_up
from tasklm.errors import RunError
from tasklm.recipe.schema import Hardware
from tasklm.storage.files import (
    full_disk_is_clear,
    locked,
    make_folder,
    require_own,
    sweep,
    write_json,
    write_text,
)
from tasklm.studying.estimates import Estimate, estimates_of
from tasklm.studying.jobs import Job, jobs_of, own_part
from tasklm.studying.markdown import render_markdown
from tasklm.studying.order import Order
from tasklm.studying.page import render_page
from tasklm.studying.results import Outcome, outcome_of
from tasklm.studying.running import is_done, run_all
from tasklm.studying.study import Study
from tasklm.tracking import Tracker

PAGE, MARKDOWN, JSON = "study.html", "study.md", "study.json"


def run(studies: Sequence[Study], order: Order, tracker: Tracker) -> dict[Path, Outcome]:
    """Trains what is missing, and writes a page of each study, from all runs that are finished.

    The folder of each study → its results. Several studies have folders of their own in that of the
    order, and what they have in common is done once.
    """
    jobs = {study.name: jobs_of(study, order.of(study, studies)) for study in studies}
    own = own_part(list(chain.from_iterable(jobs.values())), order.part)
    require_own(order.out)
    number, parts = order.part
    lock = order.out
    if parts > 1:  # every machine has its own
        lock = make_folder(order.out / f".part-{number}-of-{parts}")
    with locked(lock), full_disk_is_clear(order.out):
        sweep(order.out)
        left = sum(not is_done(job) for job in own)
        tracker.say(f"{len(own)} runs, {left} to do", ", ".join(jobs))

        def write(job: Job, problems: Mapping[str, str]) -> None:
            study = next(study for study in studies if study.name == job.study)
            _results(study, order.of(study, studies), jobs[study.name], problems)

        problems = run_all(own, order.at_once, tracker, write)
        outcomes = {}
        for study in studies:
            own_order = order.of(study, studies)
            outcome = _results(study, own_order, jobs[study.name], problems)
            outcomes[own_order.out] = outcome
    scored = any(cell.ours for outcome in outcomes.values() for cell in outcome.cells)
    if problems and not scored:
        title, problem = next(iter(problems.items()))
        raise RunError(f"no run has a score. {title}: {problem}")
    return outcomes


def _results(
    study: Study, order: Order, jobs: Sequence[Job], problems: Mapping[str, str]
) -> Outcome:
    """The results of the runs of a study that are finished; its pages, once there is a score."""
    outcome = outcome_of(study, order, jobs, problems)
    if any(cell.ours for cell in outcome.cells):
        write_json(order.out / JSON, outcome.to_dict())
        write_text(order.out / PAGE, render_page(outcome))
        write_text(order.out / MARKDOWN, render_markdown(outcome))
    return outcome


def dry_run(studies: Sequence[Study], order: Order) -> list[Estimate]:
    """What each run of some studies would cost."""
    device = str(order.overrides.get("hardware.device", "auto"))
    machine = set_up(Hardware(device=device))
    jobs = chain.from_iterable(jobs_of(study, order.of(study, studies)) for study in studies)
    return estimates_of(own_part(list(jobs), order.part), machine)
