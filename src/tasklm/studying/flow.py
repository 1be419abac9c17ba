"""A study, top to bottom: its runs are trained, several at once; their scores stand beside the
published ones on a page.

Runs share what they have in common (selection, tokens, stage 1), and the same command goes on where
it was stopped. On several machines with a common folder each takes a part of the runs.
"""

from __future__ import annotations

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
from tasklm.studying.jobs import Order, jobs_of, own_part
from tasklm.studying.markdown import render_markdown
from tasklm.studying.page import render_page
from tasklm.studying.results import Outcome, outcome_of
from tasklm.studying.running import is_done, run_all
from tasklm.studying.study import Study
from tasklm.tracking import Tracker

PAGE, MARKDOWN, JSON = "study.html", "study.md", "study.json"


def run_study(study: Study, order: Order, tracker: Tracker) -> Outcome:
    """Trains what is missing, and writes the page from all runs that are finished."""
    jobs = jobs_of(study, order)
    own = own_part(jobs, order.part)
    require_own(order.out)
    number, parts = order.part
    lock = order.out
    if parts > 1:  # every machine has its own
        lock = make_folder(order.out / f".part-{number}-of-{parts}")
    with locked(lock), full_disk_is_clear(order.out):
        sweep(order.out)
        left = sum(not is_done(job) for job in own)
        tracker.say(f"{study.source}; {len(own)} runs, {left} to do", study.name)
        problems = run_all(own, order.at_once, tracker)
        outcome = outcome_of(study, order.scale, jobs, problems)
        if not any(is_done(job) for job in jobs):
            title, problem = next(iter(problems.items()))
            raise RunError(f"no run has a score. {title}: {problem}")
        write_json(order.out / JSON, outcome.to_dict())
        write_text(order.out / PAGE, render_page(outcome))
        write_text(order.out / MARKDOWN, render_markdown(outcome))
    return outcome


def dry_run(study: Study, order: Order) -> list[Estimate]:
    """What each run of a study would cost."""
    device = str(order.overrides.get("hardware.device", "auto"))
    machine = set_up(Hardware(device=device))
    return estimates_of(own_part(jobs_of(study, order), order.part), machine)
