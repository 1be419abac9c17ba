"""All objectives on one task, with the same selected text, encoder and training FLOPs: scores over
seeds, FLOPs, seconds.

    python benchmarks/objectives.py --work /tmp/bench --task ChemProt=tasks/chemprot:micro_f1 --task SciERC=tasks/scierc:macro_f1 \\
        --corpus texts/ --flops 3e15 --layers 12 --width 256 --workers 4 --write
    python benchmarks/objectives.py --work /tmp/bench --task SciERC=tasks/scierc:macro_f1 --corpus texts/ --flops 1e12 \\
        --layers 2 --width 64 --objectives mlm,electra --set train.rho1=7 --limit 500

A task's folder holds train, dev and test.jsonl.gz. Text is selected and tokenised once per task;
then every objective is a run folder of its own. The same command continues what was cut off.
Results are kept in the work folder after every run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from arguments import some_of
from objective_runs import folders
from objective_runs.folders import Case, Text
from objective_runs.options import add_run_options, checked_run_options
from objective_runs.report import markdown, merged, read_results, scored
from objective_runs.running import Deadline, Failed, circumstances, each_at_once, run_verb
from tasklm.errors import RunError, TaskLMError
from tasklm.objectives.base import OBJECTIVES
from tasklm.storage.files import write_json, write_text
from tasklm.tasks.classify import Classify

_PAGES = Path(__file__).resolve().parent.parent / "docs" / "benchmarks"


def main() -> None:
    """Runs what the command line asks for, joins it with earlier results and prints the page."""
    options = _options()
    deadline = Deadline(options.limit)
    earlier = read_results(options.merge)
    tasks: dict[str, Any] = {}
    texts = {case.name: _text(case, options, deadline) for case in options.task}
    jobs: list[tuple[str, Callable[[], None]]] = []
    for case in options.task:
        tasks[case.name] = _task(case, texts[case.name])
        known = scored(merged(earlier, tasks)[case.name]) if case.name in earlier else []
        for objective in options.objectives:
            if objective not in known:
                tasks[case.name]["objectives"][objective] = {"failed": "not run yet"}
                jobs.append(
                    (
                        f"{case.name}/{objective}",
                        _job(case, objective, texts[case.name], options, deadline),
                    )
                )
    for name, wrong in each_at_once(jobs, options.workers):
        task, _, objective = name.rpartition("/")
        _take(tasks[task], objective, options.work / task / objective, texts[task], wrong)
        print(f"{name}: {wrong or 'done'}", file=sys.stderr, flush=True)
        write_json(options.work / "objectives.json", {"tasks": merged(earlier, tasks)})
    found = merged(earlier, tasks)
    page = markdown(found)
    print(page)
    for folder in [options.work, *([_PAGES] if options.write else [])]:
        write_json(folder / "objectives.json", {"tasks": found})
        write_text(folder / "objectives.md", page)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--work", type=Path, required=True, help="folder for runs and results, which are kept there"
    )
    parser.add_argument(
        "--task",
        type=_case,
        action="append",
        required=True,
        help="NAME=FOLDER:METRIC; may be repeated",
    )
    known = OBJECTIVES.names()
    parser.add_argument(
        "--objectives",
        type=some_of(known),
        default=known,
        help=f"from {','.join(known)}; default: all",
    )
    parser.add_argument(
        "--merge",
        type=Path,
        nargs="*",
        help="objectives.json files: what they hold is not done again; default: the docs'",
    )
    parser.add_argument(
        "--write", action="store_true", help="write docs/benchmarks/objectives.md and .json"
    )
    add_run_options(parser, "objective")
    options = parser.parse_args()
    checked_run_options(options)
    if len({case.name for case in options.task}) < len(options.task):
        raise RunError("two tasks have one name. Give each its own with --task.")
    options.objectives = list(dict.fromkeys(options.objectives))
    options.merge = [_PAGES / "objectives.json"] if options.merge == [] else options.merge or []
    return options


def _case(text: str) -> Case:
    name, equals, rest = text.partition("=")
    folder, _, metric = rest.rpartition(":")
    if not equals or not name or "/" in name or not folder or metric not in Classify.metrics:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not NAME=FOLDER:METRIC with a metric from {', '.join(Classify.metrics)}"
        )
    return Case(name, Path(folder), metric)


def _text(case: Case, options: argparse.Namespace, deadline: Deadline) -> Text:
    """The text of a task, selected and tokenised by tasklm's own steps in a
    run folder of its own.
    """
    asked = {
        "model.encoder": options.encoder,
        "model.layers": options.layers,
        "model.width": options.width,
    }
    asked |= {"finetune.seeds": options.seeds, **dict(options.set)}
    recipe = folders.base_recipe(case, options.corpus, options.flops, asked, options.work / "cache")
    folder = options.work / case.name / "text"
    folders.write_recipe(folder, recipe)
    try:
        run_verb("tokenize", folder, None, deadline)
    except Failed as error:
        raise RunError(f"{case.name}: there is no selected text: {error}") from None
    return folders.made_text(folder, recipe)


def _task(case: Case, text: Text) -> dict[str, Any]:
    """The record of a task, as JSON will hold it, without results."""
    settings = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in folders.settings_of(text.recipe).items()
    }
    return {
        "metric": case.metric,
        "settings": settings,
        "text": text.about,
        "keys": text.keys,
        "baselines": {},
        "objectives": {},
    }


def _job(
    case: Case, objective: str, text: Text, options: argparse.Namespace, deadline: Deadline
) -> Callable[[], None]:
    """The run of one objective, which is skipped when its folder holds it; the first one also
    scores the baselines.
    """
    recipe = folders.objective_recipe(
        text, objective, objective == options.objectives[0], options.threads
    )
    folder = options.work / case.name / objective
    about = {**circumstances(options.workers), "threads": options.threads}

    def job() -> None:
        if not folders.is_done(folder, text, recipe):
            folders.start_folder(folder, text, recipe)
            run_verb("evaluate", folder, options.threads, deadline)
            folders.mark_done(folder, text, recipe, about)

    return job


def _take(
    task: dict[str, Any], objective: str, folder: Path, text: Text, wrong: str | None
) -> None:
    """Puts what a run found, or how it failed, into the record of its task."""
    if wrong is None:
        try:
            task["objectives"][objective] = folders.found_in(folder, text)
            task["baselines"] = folders.baselines_in(folder) or task["baselines"]
            return
        except RunError as error:
            wrong = str(error)
    task["objectives"][objective] = {"failed": wrong}


if __name__ == "__main__":
    try:
        main()
    except TaskLMError as error:
        sys.exit(str(error))
