"""Outcomes of laptop.py → one line for each, and the page."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from laptop_runs.cells import PEERS, Outcome, column_of, title_of
from tasklm.evaluate.scores import metric_name

Settings = dict[str, Any]  # options of the command
_DASH = "–"
_ABOUT = """\
- **Scores** are those on test × 100; dev chose what was to be chosen. In brackets: the difference
  to the linear baseline. Where the labels of test are not public, half of dev, cut off before anything
  was chosen, stands in its place. Training examples that dev or test has too are left out.
- **linear** is what the run's own score table has: TF-IDF + a linear model tuned on dev; of tags
  a linear model of each word and its neighbours; of choices words in common + a linear model.
{peers}- Commands of tasklm ran on two CPU cores{fewer}, each without a cache, as a first run does.
"""
_PEERS = {  # what a column is, where a page has it
    "hashed": (
        "- **hashed words**: the mean of hashed word and "
        "word-pair embeddings, and softmax, as in fastText.\n"
    ),
    "static": """\
- **static vectors**: mutual information of the words of the corpus, cut to its largest
  directions, averaged over a text with rare words weighing more, and a linear model.
""",
    "frozen": """\
- **MiniLM**: all-MiniLM-L6-v2, pretrained by others on a billion pairs of sentences; a linear model
  of its vectors, and the model fine-tuned; on a GPU where there is one. Peers train as long as
  tasklm's longest budget at most.
""",
}


def linear_of(task: Sequence[Outcome]) -> float | None:
    """The test score of the better cheap baseline of a task (by dev), the first one left out."""
    baselines = _baselines(task)[1:]
    return max(baselines, key=lambda row: row["dev"])["test"] if baselines else None


def _baselines(task: Sequence[Outcome]) -> list[dict[str, float]]:
    """The baselines of the longest run of a task."""
    runs = [outcome for outcome in task if outcome.baselines]
    return list(runs[-1].baselines.values()) if runs else []


def line(outcome: Outcome, task: Sequence[Outcome]) -> str:
    """What is printed as soon as a cell is done; `task` has the outcomes of the task so far."""
    start = f"{outcome.task}, {title_of(outcome.column)}:"
    if outcome.failed:
        return f"{start} {'not for this kind of task' if outcome.failed == '-' else outcome.failed}"
    words = [f"dev {100 * outcome.dev:.1f}, test {100 * outcome.test:.1f}"]
    linear = linear_of(task)
    if linear is not None:
        words.append(f"{100 * (outcome.test - linear):+.1f} to the linear baseline")
    words.append(f"{outcome.seconds:.0f} s")
    if outcome.training:
        words.append(f"{outcome.training / outcome.seconds:.0%} of it training")
    return f"{start} {', '.join(words)} ({outcome.about})"


def markdown(outcomes: Sequence[Outcome], minutes: Sequence[float], settings: Settings) -> str:
    """The page: a row for each task, the differences by budget, and what was run."""
    tasks: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        tasks.setdefault(outcome.task, []).append(outcome)
    budgets = [column_of(budget) for budget in sorted(minutes)]
    peers = [peer for peer in PEERS if any(outcome.column == peer for outcome in outcomes)]
    titles = [title_of(column) for column in (*peers, *budgets)]
    headings = ["task", "labels", "metric", "majority", "linear", *titles]
    lines = ["# On a laptop: beside cheap methods", "", "Written by `benchmarks/laptop.py`.", ""]
    lines += _table(headings, [_row(name, task, peers, budgets) for name, task in tasks.items()])
    lines += ["", "By budget, differences to the linear baseline on test, in points:", ""]
    lines += _table(
        ["column", "tasks", "mean", "worst", "behind", "seconds, median", "of it training"],
        [_summary(column, tasks) for column in (*budgets, *peers)],
    )
    lines += [
        "",
        _ABOUT.format(
            peers="".join(text for peer, text in _PEERS.items() if peer in peers),
            fewer=_on_one_core(outcomes, budgets),
        ).rstrip(),
    ]
    named = {name: value for name, value in settings.items() if value not in (None, "", 0)}
    lines += [f"- `--{name}`: {value}." for name, value in named.items()]
    lines += [f"- {_failure(outcome)}" for outcome in outcomes if outcome.failed not in ("", "-")]
    return "\n".join(lines) + "\n"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (headings, ["---"] * len(headings), *rows)]


def _row(name: str, task: list[Outcome], peers: list[str], budgets: list[str]) -> list[str]:
    linear, baselines = linear_of(task), _baselines(task)
    by_column = {outcome.column: outcome for outcome in task if not outcome.failed}
    examples = max((outcome.examples for outcome in task), default=0)
    majority = baselines[0]["test"] if baselines else None
    cells = [name, f"{examples:,}", metric_name(task[0].metric)]
    cells += [_percent(majority), _percent(linear)]
    cells += [_percent(by_column[peer].test if peer in by_column else None) for peer in peers]
    for budget in budgets:
        ours = by_column[budget].test if budget in by_column else None
        apart = "" if ours is None or linear is None else f" ({100 * (ours - linear):+.1f})"
        cells.append(_percent(ours) + apart)
    return cells


def _summary(column: str, tasks: dict[str, list[Outcome]]) -> list[str]:
    """The differences of a column over all tasks that have it and a linear baseline."""
    pairs = [
        (outcome, linear)
        for task in tasks.values()
        if (linear := linear_of(task)) is not None
        for outcome in task
        if outcome.column == column and not outcome.failed
    ]
    if not pairs:
        return [title_of(column), "0", *[_DASH] * 5]
    apart = {outcome.task: 100 * (outcome.test - linear) for outcome, linear in pairs}
    worst = min(apart, key=lambda name: apart[name])
    seconds = statistics.median(outcome.seconds for outcome, _ in pairs)
    trained = [outcome.training / outcome.seconds for outcome, _ in pairs if outcome.training]
    return [
        title_of(column),
        str(len(pairs)),
        f"{statistics.fmean(apart.values()):+.1f}",
        f"{apart[worst]:+.1f} ({worst})",
        str(sum(value < 0 for value in apart.values())),
        f"{seconds:.0f}",
        f"{statistics.median(trained):.0%}" if trained else _DASH,
    ]


def _on_one_core(outcomes: Sequence[Outcome], budgets: Sequence[str]) -> str:
    """Which budgets had one core instead of two, in words."""
    single = {outcome.column for outcome in outcomes if outcome.cores == 1}
    titles = [title_of(column) for column in budgets if column in single]
    return f" (those of {' and '.join(titles)} on one)" * bool(titles)


def _failure(outcome: Outcome) -> str:
    return f"{outcome.task}, {title_of(outcome.column)}: no result ({outcome.failed})."


def _percent(score: float | None) -> str:
    return _DASH if score is None else f"{100 * score:.1f}"
