"""Finished runs side by side: which is ahead, by how much, and how they differ."""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from tasklm.analysis.run_files import curves_of
from tasklm.analysis.run_pairs import difference_of
from tasklm.errors import RunError
from tasklm.evaluate.intervals import Difference
from tasklm.evaluate.scores import (
    Row,
    Scores,
    from_dict,
    metric_name,
    of_this_recipe,
    spread_text,
)
from tasklm.evaluate.several_tests import holm, mann_whitney
from tasklm.evaluate.verdict import sureness
from tasklm.recipe.toml import without_login
from tasklm.report.score_tables import mean_on
from tasklm.run_folder import CURVE, RECIPE, SCORES, seeds_of, stage1_name
from tasklm.storage.files import digest, file_digest, read_json

UNSET = "auto"  # a key that the run decides


@dataclass(frozen=True)
class FinishedRun:
    """The parts of a run folder that a comparison reads."""

    name: str
    folder: Path
    scores: Scores
    recipe: dict[str, str]  # dotted key → value
    curves: list[dict[str, Any]]
    test: str  # file of the test set, "" if there is none
    test_digest: str  # of its content, "" if it can no longer be read


def read_runs(folders: Sequence[Path]) -> list[FinishedRun]:
    """The finished runs in some folders, each with a unique name."""
    names = [folder.resolve().name for folder in folders]
    if len(set(names)) < len(names):
        names = [str(folder) for folder in folders]
    if len(set(names)) < len(names):
        raise RunError(
            f"a run cannot be compared with itself: {', '.join(names)}. Name different run folders."
        )
    return [_read(folder, name) for folder, name in zip(folders, names, strict=True)]


def _read(folder: Path, name: str) -> FinishedRun:
    for needed in (SCORES, RECIPE, f"{stage1_name(1)}/{CURVE}"):
        if not (folder / needed).exists():
            raise RunError(
                f"{folder} is not a finished run (no "
                f"{needed}). Finish it first: tasklm report {folder}"
            )
    recipe = tomllib.loads((folder / RECIPE).read_text(encoding="utf-8"))
    scores = from_dict(read_json(folder / SCORES))
    if not of_this_recipe(scores, folder):
        raise RunError(
            f"the scores in {folder} come from an earlier recipe. Finish the run: tasklm report "
            f"{folder}"
        )
    seeds = seeds_of(folder, scores.trainings, scores.seeds)
    test = str(recipe.get("data", {}).get("test", ""))
    return FinishedRun(
        name,
        folder,
        scores,
        recipe=_flat(recipe),
        curves=curves_of([seed for seed in seeds if (seed.folder / CURVE).exists()]),
        test=test,
        test_digest=_content(Path(test)) if test else "",
    )


def _flat(recipe: dict[str, dict[str, Any]]) -> dict[str, str]:
    """The values of a recipe as text, by dotted keys."""
    values = {}
    for section, keys in recipe.items():
        for key, value in keys.items():
            values[f"{section}.{key}"] = _value_text(value)
    return values


def _content(path: Path) -> str:
    """A hash of a file or folder as it is now; empty if it is gone."""
    if path.is_file():
        return file_digest(path)
    if not path.is_dir():
        return ""
    return digest([file_digest(file) for file in sorted(path.rglob("*")) if file.is_file()])


@dataclass(frozen=True)
class Pair:
    """The leading run minus another one on the same test examples, or why they cannot be paired."""

    other: FinishedRun
    difference: Difference | None
    problem: str = ""
    corrected: float | None = None  # p of the difference after Holm's correction over all pairs
    seeds: float | None = None  # p of the Mann-Whitney U test on the seeds' scores; None: too few


def pairs_of(runs: Sequence[FinishedRun]) -> list[Pair]:
    """The leading run paired with each other run, best first; empty without a ranking on test."""
    ordered = ranked(runs)
    if obstacles(runs) or not ordered or not _on_test(ordered[0]):
        return []
    best, *others = ordered
    pairs = []
    for other in others:
        try:
            difference = difference_of(best.folder, other.folder, (best.scores, other.scores))
            pairs.append(Pair(other, difference))
        except RunError as error:
            pairs.append(Pair(other, None, str(error)))
    return _with_tests(best, pairs)


def _with_tests(best: FinishedRun, pairs: Sequence[Pair]) -> list[Pair]:
    """The pairs with p corrected for their number, and with a test on the seeds' own scores."""
    known = [pair.difference.p for pair in pairs if pair.difference is not None]
    corrected = iter(holm(known))
    tested = []
    for pair in pairs:
        p = None if pair.difference is None else next(corrected)
        seeds = mann_whitney(_seed_scores(best), _seed_scores(pair.other))
        tested.append(dataclasses.replace(pair, corrected=p, seeds=seeds))
    return tested


def _seed_scores(run: FinishedRun) -> list[float]:
    """The test scores of the seeds of a run's own model."""
    ours = run.scores.ours
    return [] if ours is None or ours.test is None else ours.test.values


def differences(runs: Sequence[FinishedRun]) -> list[str]:
    """Why the scores of the runs cannot be compared, in sentences."""
    if obstacles(runs):
        return [_not_ranked(runs), *doubts(runs)]
    return doubts(runs)


def _not_ranked(runs: Sequence[FinishedRun]) -> str:
    return f"The runs cannot be ranked: {'; '.join(obstacles(runs))}."


def obstacles(runs: Sequence[FinishedRun]) -> list[str]:
    """Why the scored runs cannot be ranked; empty if they can be."""
    runs = [run for run in runs if _scored(run)]
    reasons = []
    metrics = {run.name: metric_name(run.scores.metric) for run in runs}
    if len(set(metrics.values())) > 1:
        reasons.append("they use different metrics: " + _listed(metrics))
    splits = {run.name: _split(run) for run in runs}
    sizes = {run.name: f"{run.scores.data.get(splits[run.name], 0):,} examples" for run in runs}
    if len(set(splits.values())) > 1:
        reasons.append("they are scored on different sets: " + _listed(splits))
    elif len(set(sizes.values())) > 1:
        reasons.append(f"their {splits[runs[0].name]} sets differ in size: " + _listed(sizes))
    elif len({run.test_digest for run in runs if _on_test(run) and run.test_digest}) > 1:
        files = {run.name: run.test for run in runs}
        reasons.append("their test sets are different files: " + _listed(files))
    return reasons


def doubts(runs: Sequence[FinishedRun]) -> list[str]:
    """Caveats for runs that are ranked all the same."""
    sentences = []
    without = [run.name for run in runs if not _on_test(run)]
    if without:
        sentences.append(
            f"No test set was scored in {', '.join(without)}: "
            f"their dev scores are compared, although dev was used to pick the model."
        )
    unread = [run.name for run in runs if _on_test(run) and not run.test_digest]
    if unread:
        sentences.append(
            f"Could not check whether the test sets are the same: "
            f"the file of {', '.join(unread)} no longer exists."
        )
    return sentences


def recipe_differences(runs: Sequence[FinishedRun]) -> list[tuple[str, list[str]]]:
    """The recipe keys that differ between runs, with their values."""
    keys = dict.fromkeys(chain.from_iterable(run.recipe for run in runs))
    rows = [(key, [run.recipe.get(key, UNSET) for run in runs]) for key in keys]
    return [(key, values) for key, values in rows if len(set(values)) > 1]


def terminal_table(runs: Sequence[FinishedRun]) -> Table:
    """A row for each run: its own model beside the best other row, for the terminal."""
    metrics = {metric_name(run.scores.metric) for run in runs}
    same_metric = len(metrics) == 1
    name = metrics.pop() if same_metric else "score"
    table = Table(title=f"{name} × 100", box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.title_style, table.title_justify = "bold", "left"
    table.add_column("run", overflow="fold")
    for column in ("dev", "test"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("best other row", overflow="fold")
    for run in runs:
        title = run.name
        if not same_metric:
            title += f", {metric_name(run.scores.metric)}"
        cells = [title, "–", "–", "–"]
        if (ours := run.scores.ours) is not None:
            cells[1:] = [spread_text(ours.dev), spread_text(ours.test), _best_other(run)]
        table.add_row(*map(Text, cells))
    return table


def _best_other(run: FinishedRun) -> str:
    """The score and name of the best row that is not the run's own model, or a dash."""
    others = [row for row in run.scores.rows if row.kind in ("baseline", "ablation")]
    if not others:
        return "–"
    best = max(others, key=score_of)
    return f"{100 * score_of(best):.1f} {best.name}"


def ranked(runs: Sequence[FinishedRun]) -> list[FinishedRun]:
    """The runs that have scores, best first."""
    return sorted((run for run in runs if _scored(run)), key=lambda run: -_own_score(run))


def leader(runs: Sequence[FinishedRun], pairs: Sequence[Pair] = ()) -> str:
    """Which run is ahead, and whether by more than chance, if known."""
    ordered = ranked(runs)
    if not ordered:
        return "None of the runs has been scored yet."
    if obstacles(runs):
        return _not_ranked(runs)
    best = ordered[0]
    score = f"{_score_text(best)} {_split(best)} {metric_name(best.scores.metric)}"
    rounded = [f"{100 * _own_score(run):.1f}" for run in ordered[:2]]
    if len(rounded) > 1 and rounded[0] == rounded[1]:
        return f"{best.name} and {ordered[1].name} tie: {score}."
    rest = "".join(f"; {run.name}: {_score_text(run)}" for run in ordered[1:])
    return f"{best.name} is ahead: {score}{rest}.{_lead(best, pairs)}"


def _lead(best: FinishedRun, pairs: Sequence[Pair]) -> str:
    """How sure the lead over the second is, in a sentence."""
    if not pairs:
        return ""
    second = pairs[0]
    if second.difference is None:
        return f" Its significance was not computed: {second.problem.rstrip('.')}."
    ours, other = best.scores.ours, second.other.scores.ours
    assert ours is not None and other is not None
    sure = sureness(ours, other, second.difference, 1 - best.scores.confidence)
    text = f" Compared with {second.other.name}: {sure}. Resampled: {second.difference.resampled}."
    if len(pairs) > 1 and second.corrected is not None:
        text += f" Corrected for {len(pairs)} comparisons (Holm): p = {second.corrected:.2g}."
    return text


def _scored(run: FinishedRun) -> bool:
    return run.scores.ours is not None and (run.scores.ours.test or run.scores.ours.dev) is not None


def _on_test(run: FinishedRun) -> bool:
    return run.scores.ours is not None and run.scores.ours.test is not None


def _split(run: FinishedRun) -> str:
    return "test" if _on_test(run) else "dev"


def _score_text(run: FinishedRun) -> str:
    assert run.scores.ours is not None
    return spread_text(run.scores.ours.test or run.scores.ours.dev)


def _own_score(run: FinishedRun) -> float:
    return score_of(run.scores.ours) if run.scores.ours is not None else -math.inf


def score_of(row: Row) -> float:
    """The mean of a row on test, or on dev without a test set; below all others if unscored."""
    return mean_on(row, on_test=row.test is not None)


def _value_text(value: Any) -> str:
    values = value if isinstance(value, list) else [value]
    return ", ".join(without_login(str(one)) for one in values) or "none"


def _listed(values: dict[str, str]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in values.items())
