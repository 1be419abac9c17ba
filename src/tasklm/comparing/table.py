"""A comparison for the terminal: the table, and what follows from it."""

from __future__ import annotations

import io

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tasklm.comparing.choosing import BEST, needs_text
from tasklm.comparing.entries import OURS
from tasklm.comparing.results import Against, Comparison, Result
from tasklm.console.durations import duration
from tasklm.evaluate.scores import flops_text, metric_name, spread_text, time_text

WIDTH = 122  # of the whole table; a narrower terminal has it in three parts
NONE = "–"


def tables(comparison: Comparison, width: int) -> list[Table]:
    """The table, in two parts where it would not fit."""
    parts = {
        heading(comparison): score_columns(comparison),
        "using the model": use_columns(comparison),
        "training it": training_columns(comparison),
    }
    if width < WIDTH:
        return [_table(comparison, columns, title) for title, columns in parts.items()]
    whole: dict[str, list[str]] = {}
    for columns in parts.values():
        whole |= columns
    return [_table(comparison, whole, heading(comparison))]


def _table(comparison: Comparison, columns: dict[str, list[str]], title: str) -> Table:
    drawn = Table(
        title=Text(title),
        title_style="bold",
        title_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
    )
    drawn.add_column("contestant", overflow="fold")
    for name in columns:
        drawn.add_column(name, justify="right", no_wrap=name != "needs")
    rows = [one for one in comparison.results if not one.problem]
    for number, result in enumerate(rows):
        cells = [result.title, *(column[number] for column in columns.values())]
        style = ("", "bold")[comparison.picks.get(BEST) == result.title]
        drawn.add_row(*[Text(cell) for cell in cells], style=style)
    return drawn


def heading(comparison: Comparison) -> str:
    """What the scores are."""
    name = f"{comparison.split} {metric_name(comparison.metric)} × 100"
    return f"{name}, [{comparison.confidence:.0%} interval]"


def score_columns(comparison: Comparison) -> dict[str, list[str]]:
    """Scores, and p of the difference from tasklm, or from the best where tasklm is not there."""
    rows = [one for one in comparison.results if not one.problem]
    columns = {}
    if comparison.split == "test":
        columns["dev"] = [spread_text(one.dev) for one in rows]
    columns[comparison.split] = [spread_text(one.score) for one in rows]
    whom = opponent(comparison)
    pairs = [one.ours or one.best for one in rows]
    if whom == OURS:
        pairs = [one.ours for one in rows]
    columns[f"p to {whom}"] = [p_text(pair) for pair in pairs]
    return columns


def opponent(comparison: Comparison) -> str:
    """Whom p compares with: tasklm, or the best."""
    if any(one.ours is not None for one in comparison.results):
        return OURS
    return "the best"


def p_text(against: Against | None) -> str:
    """p for a cell, corrected for the number of comparisons."""
    if against is None:
        return NONE
    return against.p_text()


def use_columns(comparison: Comparison) -> dict[str, list[str]]:
    """Size and latency."""
    rows = [one for one in comparison.results if not one.problem]
    return {
        "MB": [size_text(one.cost.size) for one in rows],
        "ms, 95 %": [latency_text(one) for one in rows],
        "texts/s": [rate_text(one) for one in rows],
    }


def training_columns(comparison: Comparison) -> dict[str, list[str]]:
    """What the training took, and what it needed."""
    rows = [one for one in comparison.results if not one.problem]
    return {
        "training": [time_text(one.cost.seconds) for one in rows],
        "memory": [memory_text(one.cost.memory) for one in rows],
        "FLOPs": [flops_text(one.cost.flops) for one in rows],
        "needs": [needs_text(one.cost) for one in rows],
    }


def size_text(size: float) -> str:
    """Megabytes: 0.31, 4.2, 87."""
    if size <= 0:
        return NONE
    return _digits(size / 1e6)


def memory_text(size: float) -> str:
    """Memory in megabytes or gigabytes."""
    if size <= 0:
        return NONE
    if size >= 1e9:
        return f"{size / 1e9:.1f} GB"
    return f"{size / 1e6:.0f} MB"


def latency_text(result: Result) -> str:
    """The median of one text in milliseconds, and what 19 of 20 stay below."""
    if result.latency is None:
        return NONE
    median, slow = 1e3 * result.latency.median, 1e3 * result.latency.slow
    return f"{_digits(median)}, {_digits(slow)}"


def rate_text(result: Result) -> str:
    """Texts in a second, in batches."""
    if result.latency is None:
        return NONE
    return _digits(result.latency.per_second)


def _digits(number: float) -> str:
    """A number with two digits after the point below 1, one below 10, and none above."""
    after = (number < 1) + (number < 10)
    return f"{number:,.{after}f}"


def notes(comparison: Comparison) -> list[str]:
    """What a reader of the table must know."""
    lines = [f"{one.title}: not compared, {one.problem}" for one in comparison.results]
    lines = [line for line, one in zip(lines, comparison.results, strict=True) if one.problem]
    lines += [f"{one.title}: {one.note}" for one in comparison.results if one.note]
    lines.append(
        f"p: paired bootstrap over the examples of {comparison.split}, corrected for the number "
        "of comparisons (Holm)"
    )
    lines.append(f"at most {duration(60 * comparison.minutes)} each; dev chose all settings")
    if machine := machine_text(comparison):
        lines.append(machine)
    return lines


def machine_text(comparison: Comparison) -> str:
    """How latency was measured, and how steady the machine was; "" where it was not."""
    machine = comparison.machine
    if machine is None:
        return ""
    threads = f"{machine.threads} thread" + "s" * (machine.threads > 1)
    where = f"{machine.texts} texts, {threads}, {machine.device}, {machine.processor}".rstrip(", ")
    text = f"latency: median and 95 % of one text at a time, in turns ({where}), and texts per"
    steady = f"medians changed by up to {100 * machine.unsteady:.0f} % during the measurement"
    return f"{text} second in batches of {machine.batch}; {steady}"


def comparison_text(comparison: Comparison) -> str:
    """Table, advice and notes as plain text."""
    console = Console(file=io.StringIO(), width=WIDTH, no_color=True)
    for table in tables(comparison, WIDTH):
        console.print(table)
    console.print()
    for line in comparison.advice:
        console.print(f"{line}", markup=False, highlight=False, soft_wrap=True)
    for line in notes(comparison):
        console.print(f"- {line}", markup=False, highlight=False, soft_wrap=True)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()).strip("\n")
