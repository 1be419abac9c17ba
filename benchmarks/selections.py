"""Ways of selecting text on one task, at equal training FLOPs: an ablation in one command, as a
table and a chart.

    python benchmarks/selections.py --vary method --work /tmp/bench --train tasks/chemprot/train.jsonl.gz \\
        --dev tasks/chemprot/dev.jsonl.gz --test tasks/chemprot/test.jsonl.gz --metric micro_f1 --corpus texts/ \\
        --passages 50000 --flops 3e15 --layers 12 --width 256 --seeds 3 --stage1-seeds 3 --workers 4
    python benchmarks/selections.py --vary share --values 0.1,0.2,0.4,0.8 …      # also: layers, batch, steps

method: random passages, BM25's best ranked, and BM25 + influence, which chooses --share of BM25's
--passages; all keep as many. share: of the candidates that influence keeps. layers (last, middle,
all, 3+4): whose gradients are compared. batch (4/16): passages and task examples that share one
gradient. steps: training of the scoring model.

Corpus, index and candidates are made once; scoring models and scores once for every seed of stage 1
and shared by all rows that can, also those of another ablation in the same work folder. The same
command continues what was cut off and skips what is done.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from objective_runs.folders import settings_of
from objective_runs.options import add_run_options, checked_run_options
from objective_runs.running import Deadline, Failed, circumstances, each_at_once, run_verb
from selection_runs import folders
from selection_runs.folders import Shared
from selection_runs.report import markdown, merged, read_results, same, svg
from selection_runs.settings import INFLUENCE, USUAL, Setting, settings_for
from tasklm.errors import RunError, TaskLMError
from tasklm.recipe.schema import Recipe
from tasklm.storage.files import write_json, write_text
from tasklm.tasks.classify import Classify

_PAGES = Path(__file__).resolve().parent.parent / "docs" / "benchmarks"
Job = tuple[str, Callable[[], None]]


def main() -> None:
    """Runs what the command line asks for, joins it with earlier results and writes table and
    chart.
    """
    options = _options()
    deadline, earlier = Deadline(options.limit), read_results(options.merge)
    recipe = _recipe(options)
    settings = settings_for(options.vary, options.values, options.layers)
    found = _record(recipe, settings, options)
    known = {}
    if earlier is not None:
        same(earlier, found)
        known = {name: row["runs"] for name, row in earlier["rows"].items()}
    seeds = range(1, options.stage1_seeds + 1)
    wanted = [
        (one, seed)
        for one in settings
        for seed in seeds
        if "failed" in known.get(one.name, {}).get(str(seed), {"failed": ""})
    ]
    shared, broken = _score(recipe, wanted, options, deadline)
    found |= {"candidates": shared.candidates, "kept": shared.kept(), "content": shared.content}
    if earlier is not None:
        same(earlier, found)  # before the time is spent
    jobs: list[Job] = []
    for setting, seed in wanted:
        found["rows"][setting.name]["runs"][str(seed)] = {"failed": "not run yet"}
        jobs.append(
            (f"{setting.name}/{seed}", _job(shared, setting, seed, broken, options, deadline))
        )
    for name, wrong in each_at_once(jobs, options.workers):
        row, _, number = name.rpartition("/")
        setting = next(one for one in settings if one.name == row)
        folder = _folder(shared, setting, int(number), options)
        found["rows"][row]["runs"][number] = (
            {"failed": wrong} if wrong else folders.found_in(folder, setting.method)
        )
        print(f"{name}: {wrong or 'done'}", file=sys.stderr, flush=True)
        _write(merged(earlier, found), options, [options.work])
    _write(merged(earlier, found), options, [options.work, *([_PAGES] if options.write else [])])
    print((options.work / f"{_title(options)}.md").read_text(encoding="utf-8"))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--vary", choices=tuple(USUAL), required=True, help="what the rows differ in"
    )
    parser.add_argument(
        "--values",
        help="the rows, joined by commas; default: "
        + "; ".join(f"{k}: {','.join(v)}" for k, v in USUAL.items()),
    )
    parser.add_argument(
        "--work", type=Path, required=True, help="folder for runs and results, which are kept there"
    )
    parser.add_argument("--train", type=Path, required=True, help="labelled training file")
    parser.add_argument(
        "--dev", type=Path, help="labelled dev file; default: a share of the training file"
    )
    parser.add_argument(
        "--test", type=Path, help="labelled test file; without it there are dev scores alone"
    )
    parser.add_argument(
        "--name", help="of the task, on the page; default: the training file's folder"
    )
    parser.add_argument("--metric", choices=Classify.metrics, default="macro_f1")
    parser.add_argument("--passages", type=int, required=True, help="candidates that BM25 finds")
    parser.add_argument(
        "--share",
        type=float,
        default=0.2,
        help="of the candidates that every row keeps, where it is not varied",
    )
    parser.add_argument(
        "--stage1-seeds",
        type=int,
        default=1,
        help="times that every row is repeated from the selection on",
    )
    parser.add_argument(
        "--merge",
        type=Path,
        nargs="*",
        default=[],
        help="JSON files of earlier results: what they hold is not done again",
    )
    parser.add_argument(
        "--write", action="store_true", help="write page, chart and JSON to docs/benchmarks too"
    )
    add_run_options(parser, "row")
    options = parser.parse_args()
    checked_run_options(options)
    if options.stage1_seeds < 1:
        raise RunError("--stage1-seeds is 1 at least")
    options.values = options.values.split(",") if options.values else list(USUAL[options.vary])
    options.name = options.name or options.train.resolve().parent.name
    return options


def _recipe(options: argparse.Namespace) -> Recipe:
    files = {
        split: path
        for split in ("train", "dev", "test")
        if (path := getattr(options, split)) is not None
    }
    decided = {
        "select.passages": options.passages,
        "select.influence_share": options.share,
        "model.encoder": options.encoder,
        "model.layers": options.layers,
        "model.width": options.width,
        "finetune.seeds": options.seeds,
        "evaluate.metric": options.metric,
        "hardware.cache": str(options.work / "cache"),
        "hardware.threads": options.threads,
    }
    return folders.base_recipe(files, options.corpus, options.flops, decided, dict(options.set))


def _score(
    recipe: Recipe,
    wanted: list[tuple[Setting, int]],
    options: argparse.Namespace,
    deadline: Deadline,
) -> tuple[Shared, dict[str, str]]:
    """Scores candidates in all ways that rows and seeds need; returns what all share, and which
    folders failed with which words.

    First one run that makes everything, then those that train another scoring model, then those
    that score by a model that is there.
    """
    by_influence = [(setting, seed) for setting, seed in wanted if setting.method == INFLUENCE] or [
        (Setting("", INFLUENCE), 1)
    ]
    asked = [folders.scoring_recipe(recipe, setting, seed) for setting, seed in by_influence]
    recipes = {folders.scoring_name(one): one for one in asked}
    first, *others = recipes
    broken: dict[str, str] = {}
    givers: dict[str, tuple[Path, tuple[str, ...]]] = {}
    makers = {folders.model_key(recipes[first]): first}
    rounds: list[list[str]] = [[first], [], []]
    for name in others:
        maker = makers.setdefault(folders.model_key(recipes[name]), name)
        rounds[1 if maker == name else 2].append(name)
        scored = (*folders.FOUND, *(() if maker == name else ("scoring-model",)))
        givers[name] = options.work / (first if maker == name else maker), scored
    for names in rounds:
        jobs = [
            (
                name,
                _scoring_job(
                    recipes[name], options.work / name, *givers.get(name, (None, ())), deadline
                ),
            )
            for name in names
        ]
        for name, wrong in each_at_once(jobs, options.workers):
            if wrong:
                broken[name] = f"candidates were not scored: {wrong}"
        if first in broken:
            raise RunError(broken[first])
    return folders.shared_of(options.work / first, recipe), broken


def _scoring_job(
    recipe: Recipe, folder: Path, giver: Path | None, names: tuple[str, ...], deadline: Deadline
) -> Callable[[], None]:
    def job() -> None:
        if not folders.is_done(folder, recipe):
            if giver is not None and not all((giver / name).exists() for name in names):
                raise Failed(f"{giver.name}, which it goes on from, failed")
            folders.start_folder(folder, recipe, giver, names)
            run_verb("select", folder, recipe.hardware.threads, deadline)
            folders.mark_done(folder, recipe)

    return job


def _folder(shared: Shared, setting: Setting, seed: int, options: argparse.Namespace) -> Path:
    """The run folder of a row and seed; a row of two ablations is one folder."""
    recipe = folders.row_recipe(shared, setting, seed, options.threads)
    path: Path = (
        options.work / f"{setting.method}-{folders.scoring_name(recipe).removeprefix('scored-')}"
    )
    return path


def _job(
    shared: Shared,
    setting: Setting,
    seed: int,
    broken: dict[str, str],
    options: argparse.Namespace,
    deadline: Deadline,
) -> Callable[[], None]:
    """The run of one row and seed, which is skipped when its folder holds it."""
    recipe = folders.row_recipe(shared, setting, seed, options.threads)
    folder = _folder(shared, setting, seed, options)
    scored = folders.scoring_name(folders.scoring_recipe(shared.recipe, setting, seed))
    giver = options.work / scored if setting.method == INFLUENCE else shared.folder
    about = circumstances(options.workers)

    def job() -> None:
        if setting.method == INFLUENCE and scored in broken:
            raise Failed(broken[scored])
        if not folders.is_done(folder, recipe, shared.content):
            folders.start_folder(folder, recipe, giver, folders.GIVEN[setting.method])
            run_verb("evaluate", folder, options.threads, deadline)
            folders.mark_done(folder, recipe, shared.content, about)

    return job


def _record(recipe: Recipe, settings: list[Setting], options: argparse.Namespace) -> dict[str, Any]:
    """The record of the ablation, as JSON will hold it, without candidates and results."""
    plain = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in settings_of(recipe).items()
    }
    rows = {one.name: {"method": one.method, "keys": one.keys, "runs": {}} for one in settings}
    return {
        "vary": options.vary,
        "task": options.name,
        "metric": options.metric,
        "settings": plain,
        "rows": rows,
    }


def _title(options: argparse.Namespace) -> str:
    return f"selections-{options.vary}-{''.join(c if c.isalnum() else '-' for c in options.name.lower())}"


def _write(found: dict[str, Any], options: argparse.Namespace, places: list[Path]) -> None:
    for folder in places:
        write_json(folder / f"{_title(options)}.json", found)
        write_text(folder / f"{_title(options)}.svg", svg(found))
        write_text(folder / f"{_title(options)}.md", markdown(found, f"{_title(options)}.svg"))


if __name__ == "__main__":
    try:
        main()
    except TaskLMError as error:
        sys.exit(str(error))
