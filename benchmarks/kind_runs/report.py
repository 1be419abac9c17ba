"""Results on tasks of every kind → one page of Markdown."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tasklm.evaluate.scores import Spread, flops_text, metric_name, spread_text

_ABOUT = """\
- **Scores**: × 100, mean ± standard deviation over the seeds of fine-tuning, for test with a bootstrap interval over examples and seeds.
  Where test has no score its labels are not public: dev chose the epoch and is what is reported.
- **Baselines** are the best that the kind has by dev: the most frequent answer, TF-IDF + a linear model, the word's most frequent tag …
  ([kinds](../kinds.md)). Bold: the better of the two by dev.
- **FLOPs** are those of stage 1 and of one fine-tuning, exact. **Minutes** are those of stage 1 and of all fine-tuning runs; preparation
  and scoring are left out.
"""


def markdown(tasks: dict[str, Any]) -> str:
    """The page."""
    columns = [
        "task",
        "kind",
        "train / dev / test",
        "metric",
        "baseline",
        "its dev",
        "its test",
        "ours, dev",
        "ours, test",
        "FLOPs",
        "minutes",
    ]
    done = {name: task for name, task in tasks.items() if "failed" not in task}
    lines = ["# Tasks of every kind, from scratch", "", "Written by `benchmarks/kinds.py`.", ""]
    lines += [
        f"| {' | '.join(columns)} |",
        f"|{'---|' * len(columns)}",
        *(_row(name, task) for name, task in done.items()),
        "",
        _ABOUT,
    ]
    lines += [
        f"- {name}, ours on test: {told}."
        for name, task in done.items()
        if (told := _metrics(task))
    ]
    shared = _shared([task["settings"] for task in done.values()])
    lines += [f"- All: {_listed(shared)}."] if shared else []
    for name, task in done.items():
        own = {key: value for key, value in task["settings"].items() if key not in shared}
        lines += [f"- {name}: {_listed(own)}."] if own else []
    machines: dict[str, list[str]] = {}
    for name, task in done.items():
        machines.setdefault(_machine(task["about"]), []).append(name)
    lines += [
        f"- {machine}: {', '.join(names)}." if len(machines) > 1 else f"- {machine}."
        for machine, names in machines.items()
    ]
    lines += [
        f"- {name}: no result ({task['failed']})."
        for name, task in tasks.items()
        if "failed" in task
    ]
    return "\n".join([*lines, ""])


def _row(name: str, task: dict[str, Any]) -> str:
    (ours,) = (row for row in task["rows"] if row["kind"] == "ours")
    baselines = [row for row in task["rows"] if row["kind"] == "baseline"]
    best = max(baselines, key=lambda row: row["dev"]["mean"])
    ahead = ours["dev"]["mean"] > best["dev"]["mean"]
    minutes = sum(task["seconds"].values()) / 60
    sizes = " / ".join(f"{count:,}" if count else "–" for count in task["examples"].values())
    cells = [
        name,
        task["kind"],
        sizes,
        metric_name(task["metric"]),
        best["name"],
        _text(best["dev"], not ahead),
        _text(best["test"]),
    ]
    cells += [
        _text(ours["dev"], ahead),
        _text(ours["test"]),
        flops_text(ours["flops_exact"]),
        f"{minutes:.1f}",
    ]
    return f"| {' | '.join(cells)} |"


def _metrics(task: dict[str, Any]) -> str:
    """All metrics of our model on test; nothing where there is but the one of the table."""
    (ours,) = (row for row in task["rows"] if row["kind"] == "ours")
    told = [
        f"{metric_name(name)} {100 * value:.1f}" for name, value in (ours["metrics"] or {}).items()
    ]
    return ", ".join(told) if ours["test"] is not None and len(told) > 1 else ""


def _text(score: dict[str, Any] | None, bold: bool = False) -> str:
    if score is None:
        return "–"
    told = spread_text(Spread(**score))
    return f"**{told}**" if bold else told


def _shared(settings: list[dict[str, Any]]) -> dict[str, Any]:
    """What more than one task has, and all have alike."""
    counts = Counter((key, str(value)) for one in settings for key, value in one.items())
    return {
        key: value
        for key, value in (settings[0] if len(settings) > 1 else {}).items()
        if counts[key, str(value)] == len(settings)
    }


def _listed(settings: dict[str, Any]) -> str:
    plain = {
        key: f"{value:g}" if isinstance(value, float) else str(value)
        for key, value in settings.items()
    }
    return ", ".join(f"`{key}` = {value}" for key, value in plain.items())


def _machine(about: dict[str, Any]) -> str:
    at_once = (
        "one run at a time"
        if about["workers"] == 1
        else f"up to {about['workers']} runs at once, which makes each slower"
    )
    return f"{about['date']}; {about['device']}; {about['software']}; {at_once}"
