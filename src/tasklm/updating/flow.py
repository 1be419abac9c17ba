"""An update, top to bottom: the new files are read beside those of the run, the model learns them,
both models answer the same test set, and the better one on dev is in model/.

Each step is an artefact of `updates/N`, so that the same command continues where it was stopped,
and one whose update is finished does nothing. The model of before is replaced at the very end.
"""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path

from tasklm.artifacts import Artefacts, rebuilding
from tasklm.bill.record import BILL
from tasklm.console.clock import Clock
from tasklm.coverage.calibration import FILE as COVERAGE
from tasklm.evaluate.scores import Costs, to_dict
from tasklm.pipeline.inputs import Inputs
from tasklm.recipe.toml import dump, recipe_key
from tasklm.run_folder import EVENTS, LOG, MANIFEST, MODEL, RECIPE, REPORT, SCORES
from tasklm.storage.checksums import content_of
from tasklm.storage.files import (
    ARTEFACT,
    full_disk_is_clear,
    locked,
    read_json,
    write_json,
    write_record,
    write_text,
)
from tasklm.tasks.audit import refuse
from tasklm.tracking import EventFile, LogFile, Tracker
from tasklm.updating.before_after import (
    AFTER,
    BEFORE,
    Answers,
    changed_predictions,
    groups_of,
    score_rows,
    table_of,
    write_changed,
)
from tasklm.updating.bill import keep_bill
from tasklm.updating.calibrating import keep_calibration
from tasklm.updating.linear_learner import LinearLearner
from tasklm.updating.page import render_page
from tasklm.updating.reading import (
    Request,
    base_of,
    data_key,
    few_for_dev,
    grounds_of,
    recipe_for,
    require_given,
    require_unchanged,
)
from tasklm.updating.record import (
    RESULT,
    Begun,
    UpdateResult,
    begin,
    folder_of,
    lineage_of,
    place_for,
    result_of,
)
from tasklm.updating.work import Learner, Work, seconds_in

CHANGED = "changed.jsonl"
RECORDS = (BILL, COVERAGE)  # that stand beside the files of a model, which they speak of
LEFT_OUT = (ARTEFACT, *RECORDS, "damaged.json")  # of a copy of a model, which has its own


def update(
    run: Path, request: Request, tracker: Tracker, clock: Clock | None = None
) -> UpdateResult:
    """Updates the model of a finished run; an update that is done is not done again."""
    clock = clock or Clock()
    require_given(request)
    base_of(run)  # refuses what is no run before anything is locked there
    with locked(run), full_disk_is_clear(run):
        return rebuilding(lambda: _updated(run, request, tracker, clock), [run], tracker.warn)


def _updated(run: Path, request: Request, tracker: Tracker, clock: Clock) -> UpdateResult:
    base, inputs = base_of(run), Inputs()
    recipe = recipe_for(base, request)
    data = data_key(recipe, request, inputs)
    wanted = Begun(data, base.number, content_of(base.model))
    number = place_for(run, wanted)
    folder = folder_of(run, number)
    done = result_of(folder)
    if done is not None:
        tracker.say("this update is done already", f"update {number}")
    else:
        begin(folder, wanted)
        tracker.sinks = [EventFile(folder / EVENTS), LogFile(folder / LOG)]
        artefacts = Artefacts(folder, tell=tracker.warn)
        artefacts.sweep()
        write_text(folder / RECIPE, dump(recipe))
        write_json(folder / MANIFEST, {"python": platform.python_version(), "system": os.name})
        with tracker.progress("reading the examples"):
            require_unchanged(base, inputs)
            grounds = grounds_of(base, recipe, request)
        work = Work(base, request, recipe, grounds, number, data, artefacts, inputs, tracker, clock)
        _say_what_is_new(work)
        done = _worked(work)
    if done.published and number not in lineage_of(run):
        _publish(run, folder)
    return done


def _say_what_is_new(work: Work) -> None:
    """Notes what the new files gave, and refuses data that nothing can be learnt from."""
    grounds, data = work.grounds, work.recipe.data
    for note in grounds.splits.notes:
        if any(path in note for path in data.more) or "further" in note:
            work.note(note)
    refuse(grounds.task.audit(grounds.splits))  # leaks are refused where rows are read
    if unseen := few_for_dev(grounds):
        work.note(
            f"no example of {', '.join(unseen)} is in dev, so nothing judges the new classes "
            "there; give more rows of them, or a --dev file"
        )


def _worked(work: Work) -> UpdateResult:
    """Everything but putting the model into its place."""
    _keep_first(work)
    learned = _learner(work).learn(work)
    work.keep_clock()
    answers = Answers(learned.answers, work.grounds)
    with work.tracker.progress("comparing before and after"):
        groups = groups_of(answers, work.resampling)
        costs = Costs(seconds=round(work.seconds(), 1))
        rows = score_rows(answers, work.resampling, costs)
    changed = changed_predictions(answers)
    write_changed(work.folder / CHANGED, changed)
    linear = work.base.saved.is_linear
    table = table_of(answers, rows, recipe_key(work.folder / RECIPE), linear)
    write_record(work.folder / SCORES, to_dict(table))
    keep_bill(work)
    keep_calibration(work, answers)
    before, after = (answers.score(when, "dev") for when in (BEFORE, AFTER))
    work.keep_clock()
    result = UpdateResult(
        number=work.number,
        run=str(work.base.run),
        metric=work.grounds.metric,
        split=answers.split,
        published=after >= before,
        dev_before=before,
        dev_after=after,
        groups=groups,
        new_classes=work.grounds.new_classes,
        changed=len(changed),
        examples={name: len(own) for name, own in work.grounds.splits.named().items()},
        seconds=round(work.seconds(), 3),
        first_seconds=seconds_in(work.base.run),
        linear=linear,
        confidence=work.resampling.confidence,
        notes=work.notes,
        **learned.costs,
    )
    write_text(work.folder / REPORT, render_page(result, changed))
    write_record(work.folder / RESULT, result.to_dict())
    return result


def _learner(work: Work) -> Learner:
    """How this sort of model learns; networks need PyTorch, linear models do without."""
    if work.base.saved.is_linear:
        return LinearLearner()
    from tasklm.updating.network_learner import NetworkLearner

    return NetworkLearner()


def _keep_first(work: Work) -> None:
    """Copies the model of the first training to updates/0, unless it is there."""
    if work.base.number:
        return
    first = Artefacts(folder_of(work.base.run, 0))
    key = read_json(work.base.model / ARTEFACT)["key"]
    first.build(MODEL, key, lambda folder: _copy(work.base.model, folder))
    _copy_records(work.base.model, first.path(MODEL))


def _publish(run: Path, folder: Path) -> None:
    """Puts the model of an update into model/, in one step."""
    Artefacts(run).replace(MODEL, lambda part: _copy(folder / MODEL, part))
    _copy_records(folder / MODEL, run / MODEL)


def _copy(source: Path, target: Path) -> None:
    """Copies the files of a model into a folder."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(*LEFT_OUT), dirs_exist_ok=True)


def _copy_records(source: Path, target: Path) -> None:
    for name in RECORDS:
        (target / name).unlink(missing_ok=True)
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
