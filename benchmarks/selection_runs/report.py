"""Results of an ablation → one page of Markdown and a chart; earlier results beside new ones."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from charts import Mark, chart
from selection_runs.settings import ORDERED
from tasklm.errors import RunError
from tasklm.evaluate.scores import Spread, flops_text, metric_name, spread_text
from tasklm.evaluate.scores import spread as spread_of
from tasklm.storage.files import read_json, require_file

TOLERANCE = 0.02  # stage 1 may miss the FLOPs asked for by this share before the page says so
TITLES = {
    "method": "Who selects, at equal size and equal training FLOPs",
    "share": "Influence: the share of the candidates that is kept",
    "layers": "Influence: the layers whose gradients are compared",
    "batch": "Influence: passages / task examples that share one gradient",
    "steps": "Influence: training steps of the scoring model",
}
_WHAT = {
    "method": "Each row keeps as many passages: random ones of the whole "
    "corpus, BM25's best ranked, and those of its candidates that "
    "influence chooses.",
    "share": (
        "The candidates and their scores are the same "
        "for all rows; fewer passages are read more often."
    ),
    "layers": "Candidates, scoring model and number of passages are the same for all rows.",
    "batch": "Candidates, scoring model and number of passages are the same for all rows.",
    "steps": "Candidates and number of passages are the same for all rows.",
}
_ABOUT = """\
- **Scores**: × 100. With several seeds of stage 1 the mean ± standard deviation over them, each the mean over its seeds of fine-tuning;
  with one, over the seeds of fine-tuning, which has no luck of pretraining in it, and for test also the bootstrap interval over examples
  and seeds. A seed of stage 1 repeats the whole method: scoring model, draw of random passages, and training. Differences of the size of
  the spread mean nothing. The best dev score is bold; test chose nothing. Dev labels choose text where influence does, unless
  `select.influence_on` is train.
- **FLOPs** of stage 1 are exact and the same for all rows, but for rounding to whole steps. Those of **selection** are the scoring model's
  training and the gradient passes, which come on top. Fine-tuning is left out.
- **Seconds** of selection are those of the steps when they were computed, for the first row that needed them: reading the corpus is left
  out, the index of BM25 is in where it was made. Means over the seeds of stage 1.
"""


def markdown(found: dict[str, Any], picture: str) -> str:
    """The page of one ablation; `picture` is the name of the chart's file."""
    rows = found["rows"]
    best = max(
        (dev.mean for row in rows.values() if (dev := score_of(row, "dev")) is not None),
        default=None,
    )
    settings = ", ".join(f"`{key}` = {_plain(value)}" for key, value in found["settings"].items())
    with_test = any(score_of(row, "test") is not None for row in rows.values())
    columns = [
        found["vary"],
        "dev",
        *(["test"] if with_test else []),
        "passages",
        "tokens",
        "types",
    ]
    columns += [
        f"{what} of {part}" for what in ("FLOPs", "seconds") for part in ("selection", "stage 1")
    ]
    lines = [
        f"# {TITLES[found['vary']]}: {found['task']} ({metric_name(found['metric'])})",
        "",
        (
            f"Written by `benchmarks/selections.py --vary "
            f"{found['vary']}`. {found['candidates']:,} candidates. {_WHAT[found['vary']]}"
        ),
        "",
        f"![scores of the table below]({picture})",
        "",
        f"| {' | '.join(columns)} |",
        f"|{'---|' * len(columns)}",
        *(_row(name, row, best, with_test) for name, row in rows.items()),
        "",
        *_differences(found["rows"]),
        _ABOUT,
        f"Settings that are not the defaults: {settings}.",
        "",
        *_notes(found),
    ]
    return "\n".join([*lines, ""])


def difference(
    row: dict[str, Any], other: dict[str, Any], split: str
) -> tuple[float, float, float] | None:
    """The mean score of a row less that of another, and its 95 % interval (Welch's t over the seeds
    of stage 1).

    None where one has fewer than two seeds of stage 1, or neither has any spread.
    """
    ours, theirs = (
        [run[split]["mean"] for run in scored(one) if run[split] is not None]
        for one in (row, other)
    )
    if min(len(ours), len(theirs)) < 2 or (np.ptp(ours) == 0 and np.ptp(theirs) == 0):
        return None
    interval = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval()
    return float(np.mean(ours) - np.mean(theirs)), float(interval.low), float(interval.high)


def _differences(rows: dict[str, Any]) -> list[str]:
    """How far each row is from the one above it, where seeds of stage 1 tell."""
    lines = []
    for (above, other), (name, row) in pairwise(rows.items()):
        told = [
            f"{split} {100 * found[0]:+.1f} [{100 * found[1]:+.1f}, {100 * found[2]:+.1f}]"
            for split in ("dev", "test")
            if (found := difference(row, other, split)) is not None
        ]
        if told:
            lines.append(f"- **{name}** less **{above}**: {', '.join(told)}.")
    head = (
        "Differences to the row above, with 95 % intervals over the "
        "seeds of stage 1 (Welch's t); one that has 0 inside shows nothing:"
    )
    return [head, "", *lines, ""] if lines else []


def svg(found: dict[str, Any]) -> str:
    """The chart of one ablation, or nothing where no row has a score."""
    series = {}
    for split in ("dev", "test"):
        marks = [_mark(score_of(row, split)) for row in found["rows"].values()]
        if any(mark is not None for mark in marks):
            series[split] = marks
    title = f"{found['task']}, {metric_name(found['metric'])} × 100, mean ± sd"
    return chart(title, list(found["rows"]), series, found["vary"], found["vary"] in ORDERED)


def score_of(row: dict[str, Any], split: str) -> Spread | None:
    """The score of a row over its seeds: those of stage 1 where there are several, else those of
    fine-tuning.
    """
    runs = [run[split] for run in scored(row) if run[split] is not None]
    if not runs:
        return None
    if len(runs) > 1:
        return spread_of([run["mean"] for run in runs])
    low, high = runs[0]["low"], runs[0]["high"]
    return spread_of(runs[0]["values"], None if low is None or high is None else (low, high))


def scored(row: dict[str, Any]) -> list[dict[str, Any]]:
    """The runs of a row that have scores."""
    return [run for run in row["runs"].values() if "failed" not in run]


def same(old: dict[str, Any], new: dict[str, Any]) -> None:
    """Raises where two records are not of one ablation; what `new` does not hold yet is not
    compared.
    """
    for what in ("vary", "task", "metric", "settings", "candidates", "content"):
        if what in new and old[what] != new[what]:
            remedy = "Leave it out of --merge, or ask for the same."
            raise RunError(
                f"the earlier results differ in {what} "
                f"({old[what]}) from this command's ({new[what]}). {remedy}"
            )


def merged(old: dict[str, Any] | None, new: dict[str, Any]) -> dict[str, Any]:
    """The rows and runs of both, which must be of one task, with the same
    candidates and settings.
    """
    if old is None:
        return new
    same(old, new)
    rows = dict(old["rows"])
    for name, row in new["rows"].items():
        runs = dict(rows[name]["runs"]) if name in rows else {}
        for seed, run in row["runs"].items():
            if "failed" not in run or "failed" in runs.get(seed, {"failed": ""}):
                runs[seed] = run
        rows[name] = {**row, "runs": runs}
    return {**new, "rows": rows}


def read_results(files: list[Path]) -> dict[str, Any] | None:
    """What earlier commands wrote, joined, or None where no file is named."""
    found: dict[str, Any] | None = None
    for file in files:
        found = merged(found, read_json(require_file(file, "Name another file with --merge.")))
    return found


def _row(name: str, row: dict[str, Any], best: float | None, with_test: bool) -> str:
    runs = scored(row)
    if not runs:
        why = next((run["failed"] for run in row["runs"].values()), "not run yet")
        return f"| {name} | no result ({why}) |{' |' * (8 + with_test)}"
    dev, test = score_of(row, "dev"), score_of(row, "test")
    assert dev is not None
    cells = [
        name,
        f"**{spread_text(dev)}**" if dev.mean == best else spread_text(dev),
        *([spread_text(test)] if with_test else []),
    ]
    cells += [
        f"{_mean(runs, 'selection', what):,.0f}" for what in ("passages", "tokens", "vocabulary")
    ]
    cells += [
        flops_text(_mean(runs, "selection", "flops")),
        flops_text(_mean(runs, "stage1", "flops")),
    ]
    cells += [f"{_mean(runs, part, 'seconds'):,.0f}" for part in ("selection", "stage1")]
    return f"| {' | '.join(cells)} |"


def _mean(runs: list[dict[str, Any]], part: str, what: str) -> float:
    return float(np.mean([run[part][what] for run in runs]))


def _mark(score: Spread | None) -> Mark | None:
    return (
        None
        if score is None
        else Mark(100 * score.mean, 100 * score.sd, [100 * value for value in score.values])
    )


def _notes(found: dict[str, Any]) -> list[str]:
    """What a reader must know about these rows: seeds, where they ran, sizes and FLOPs that were
    missed, runs that failed.
    """
    asked, lines, machines = found["settings"]["budget.flops"], [], {}
    for name, row in found["rows"].items():
        for seed, run in row["runs"].items():
            if "failed" in run:
                lines.append(f"- {name}, seed {seed} of stage 1: no result ({run['failed']}).")
                continue
            about = run["about"]
            at_once = (
                "one run at a time"
                if about["workers"] == 1
                else f"up to {about['workers']} runs at once, so that seconds are no comparison"
            )
            machines.setdefault(
                f"{about['date']}; {about['device']}; {about['software']}; {at_once}", set()
            ).add(name)
            if abs(run["stage1"]["flops"] / asked - 1) > TOLERANCE:
                lines.append(
                    f"- {name}, seed {seed} of stage 1, "
                    f"spent {100 * run['stage1']['flops'] / asked:.1f} "
                    f"% of the FLOPs asked for."
                )
            if found["vary"] != "share" and run["selection"]["passages"] != found["kept"]:
                lines.append(
                    f"- {name}, seed {seed} of stage 1, "
                    f"had {run['selection']['passages']:,} passages, not {found['kept']:,}."
                )
    counts = {len(scored(row)) for row in found["rows"].values()}
    tuned = {len(run["dev"]["values"]) for row in found["rows"].values() for run in scored(row)}
    seeds = f"- Seeds of stage 1: {_numbers(counts)}; of fine-tuning, each: {_numbers(tuned)}."
    where = [
        f"- {', '.join(sorted(names))}: {machine}." if len(machines) > 1 else f"- {machine}."
        for machine, names in machines.items()
    ]
    return [seeds, *where, *lines]


def _numbers(found: set[int]) -> str:
    return (
        " to ".join(str(number) for number in sorted({min(found), max(found)})) if found else "none"
    )


def _plain(value: Any) -> str:
    return (
        f"{value:g}"
        if isinstance(value, float)
        else ", ".join(value)
        if isinstance(value, (list, tuple))
        else str(value)
    )
