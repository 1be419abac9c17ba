"""The runs of a study in processes of their own, several at once; each goes on where it was
stopped.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from tasklm.comparing.processes import SILENT, THREADS
from tasklm.comparing.worker import FAILED
from tasklm.console.progress import Bar
from tasklm.corpus.processes import usable_cores
from tasklm.errors import DamagedError
from tasklm.recipe.toml import dump
from tasklm.storage.files import (
    digest,
    make_folder,
    publish,
    read_json,
    remove,
    write_record,
    write_text,
)
from tasklm.storage.pool import linked_copy
from tasklm.studying.jobs import TASKS, Job, beside
from tasklm.tracking import Tracker

RECORD = "study.json"  # in the folder of a run that is finished: what it was done with
OUTPUT = "output.txt"  # of its process, beside its folder
PAUSE = 0.1  # seconds between two looks at the processes
LAST = 400  # characters of a process that ended without a word of why


def key_of(job: Job) -> str:
    """A hash of what a run is asked to do and of what it reads, independent of the machine; of what
    other runs give to it, their own keys.
    """
    recipe = job.recipe.changed(hardware={"threads": None, "cache": "", "shared": ""})
    if not job.needs and not job.members:
        return digest([dump(recipe), job.content])
    if job.start is not None:
        recipe = recipe.changed(train={"start": ""})
    if job.teachers:
        recipe = recipe.changed(distill={"teachers": []})
    recipe = recipe.changed(several={"tasks": []})
    members = {task: dump(own) for task, own in job.members.items()}
    needs = [key_of(need) for need in job.needs]
    return digest([dump(recipe), job.content, job.line.until, members, needs])


def is_done(job: Job) -> bool:
    """Whether a run has been finished with its recipe and data."""
    path = job.folder / RECORD
    try:
        done = path.exists() and read_json(path)["key"] == key_of(job)
    except (DamagedError, KeyError, TypeError):
        return False
    return done and job.result.exists()


@dataclass
class _Running:
    """A run that has a process."""

    job: Job
    process: subprocess.Popen[bytes]
    output: IO[bytes]


def run_all(
    jobs: Sequence[Job],
    at_once: int,
    tracker: Tracker,
    after: Callable[[Job, Mapping[str, str]], None] = lambda job, problems: None,
) -> dict[str, str]:
    """Does the runs that are not done; titles of those that failed → why. Runs that are equal, in
    several studies, are done once; a run waits for those that it needs. `after` is told of each
    that ended, and what failed so far.
    """
    keys = {job.title: key_of(job) for job in jobs}
    done = {keys[job.title]: job for job in jobs if is_done(job)}
    waiting = [job for job in jobs if not is_done(job)]
    running, problems = list[_Running](), dict[str, str]()
    with tracker.progress("runs", len(jobs)) as bar:
        bar.advance(len(jobs) - len(waiting))
        try:
            while waiting or running:
                busy = {keys[one.job.title] for one in running}
                for lost in _hopeless(waiting, problems):
                    waiting.remove(lost)
                    bar.advance(1)
                    after(lost, problems)
                left = {job.title for job in [*waiting, *(one.job for one in running)]}
                job = next((job for job in waiting if _is_ready(job, left, keys, busy)), None)
                if job is not None and len(running) < at_once:
                    waiting.remove(job)
                    if twin := done.get(keys[job.title]):
                        _copy(twin, job)
                        bar.advance(1)
                        after(job, problems)
                    else:
                        running.append(_start(job, at_once, tracker))
                    continue
                before, running = running, _still(running, problems, bar, tracker)
                ended = [one.job for one in before if one not in running]
                done |= {keys[job.title]: job for job in ended if is_done(job)}
                for one in ended:
                    after(one, problems)
                time.sleep(PAUSE)
        finally:
            _end(running)
    return problems


def _is_ready(job: Job, left: set[str], keys: Mapping[str, str], busy: set[str]) -> bool:
    """Whether what a run needs is done, and no equal one is under way."""
    return keys[job.title] not in busy and not any(need.title in left for need in job.needs)


def _hopeless(waiting: Sequence[Job], problems: dict[str, str]) -> list[Job]:
    """The runs that need one which failed, or one that needs such; that is their problem, too."""
    lost = list[Job]()
    for _ in waiting:  # a run may stand before one that it needs
        for job in waiting:
            failed = [need for need in job.needs if need.title in problems]
            if failed and job not in lost:
                lost.append(job)
                because = f"{failed[0].task}, {failed[0].line.name}"
                problems[job.title] = f"it needs {because}, which failed"
    return lost


def _copy(twin: Job, job: Job) -> None:
    """Gives a run the files of an equal one."""
    partial = beside(job, "partial")
    linked_copy(twin.folder, partial)
    remove(job.folder)
    publish(partial, job.folder)


def _start(job: Job, at_once: int, tracker: Tracker) -> _Running:
    tracker.say(job.title, "run")
    make_folder(job.folder.parent)
    recipe = beside(job, "recipe.toml")
    threads = job.recipe.hardware.threads or max(1, usable_cores() // at_once)
    write_text(recipe, dump(job.recipe.changed(hardware={"threads": threads})))
    for task, own in job.members.items():
        write_text(make_folder(beside(job, TASKS)) / f"{task}.toml", dump(own))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    environment |= {**SILENT, **dict.fromkeys(THREADS, str(threads))}
    command = [sys.executable, "-m", "tasklm.studying.worker", str(recipe), str(job.folder)]
    command += [job.line.until] if job.line.until else []
    output = beside(job, OUTPUT).open("wb")
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=subprocess.STDOUT,
    )
    return _Running(job, process, output)


def _still(
    running: Sequence[_Running], problems: dict[str, str], bar: Bar, tracker: Tracker
) -> list[_Running]:
    """Those that still run; the problems of those that ended are added."""
    rest = []
    for one in running:
        if one.process.poll() is None:
            rest.append(one)
            continue
        _close(one)
        bar.advance(1)
        if problem := _problem(one):
            problems[one.job.title] = problem
            tracker.warn(f"{one.job.title}: {problem}")
        else:
            write_record(one.job.folder / RECORD, {"key": key_of(one.job)})
            beside(one.job, OUTPUT).unlink(missing_ok=True)
    return rest


def _problem(one: _Running) -> str:
    """Why a run failed; "" if it did not."""
    status = one.process.returncode
    output = beside(one.job, OUTPUT).read_text(encoding="utf-8", errors="replace").strip()
    if status == 0:
        return ""
    if status == FAILED:
        return output
    if status == -signal.SIGKILL:
        return "its process was killed, most likely for lack of memory: try a lower --at-once"
    return f"its process ended with status {status}: … {output[-LAST:]}"


def _end(running: Sequence[_Running]) -> None:
    """Ends processes, and waits for them; they go on where they were, next time."""
    for one in running:
        one.process.send_signal(signal.SIGINT)
    for one in running:
        one.process.wait()
        _close(one)


def _close(one: _Running) -> None:
    if one.process.stdin is not None:
        one.process.stdin.close()
    one.output.close()
