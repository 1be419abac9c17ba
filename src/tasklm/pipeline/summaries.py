"""The short lines by which a run tells what it read, what it plans and what it has done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tasklm.budget.rules import Plan
from tasklm.console.durations import duration
from tasklm.encoders.shapes import SIZES
from tasklm.evaluate.scores import flops_text, metric_name, spread, spread_text
from tasklm.pipeline.context import CorpusData, TaskData
from tasklm.recipe.schema import Recipe

NO_CORPUS = "none; --corpus would give the model more text to learn from"


def data_text(recipe: Recipe, task: TaskData) -> str:
    """How many examples each split has, and how many labels there are."""
    sizes = [f"{name} {len(part):,}" for name, part in task.splits.named().items()]
    if not recipe.data.dev:
        sizes = [f"{size} (from train)" if size.startswith("dev ") else size for size in sizes]
    labels = len(task.task.labels)
    what = "classes" if task.task.classifies else "labels"
    return f"{', '.join(sizes)} examples" + (f"; {labels:,} {what}" if labels else "")


def corpus_text(corpus: CorpusData | None) -> str:
    """How much text there is to select from."""
    if corpus is None:
        return NO_CORPUS
    counts = corpus.store.counts
    return f"{counts['passages']:,} passages, {counted(counts['words'])} words"


def plan_text(recipe: Recipe, plan: Plan, selects: bool) -> str:
    """Size of the model, how much text it reads, and what it may cost, in one line."""
    layers, width = SIZES[plan.size]
    layers, width = recipe.model.layers or layers, recipe.model.width or width
    named = recipe.model.layers is None and recipe.model.width is None
    parts = [f"{layers}-layer model of width {width}"]
    if named:
        parts = [f"{plan.size} model ({plural(layers, 'layer')}, width {width})"]
    if not selects:
        parts.append("the task's text alone")
    elif plan.passages is None:
        parts.append("all passages that match")
    else:
        parts.append(f"at most {plan.passages:,} passages")
    if recipe.train.steps is not None:
        parts.append(plural(recipe.train.steps, "step"))
    elif plan.seconds is not None:
        parts.append(f"{duration(plan.seconds)} in all")
    elif plan.flops is not None:
        parts.append(f"{flops_text(plan.flops)} FLOPs")
    return ", ".join(parts)


def stage1_text(summary: dict[str, Any]) -> str:
    """What stage 1 did, from its summary."""
    steps, tokens = plural(summary["steps"], "step"), counted(summary["tokens"])
    return f"{steps}, {tokens} tokens read, in {duration(summary['seconds'])}"


def stage2_text(summaries: Sequence[dict[str, Any]], metric: str) -> str:
    """What stage 2 reached on dev, from the summaries of its seeds."""
    scores = spread_text(spread([summary["dev"] for summary in summaries]))
    seconds = sum(float(summary["seconds"]) for summary in summaries)
    return (
        f"dev {metric_name(metric)} {scores}, "
        f"{plural(len(summaries), 'seed')}, in {duration(seconds)}"
    )


def plural(number: int, thing: str) -> str:
    """A number of things: 1 step, 1,200 steps."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def counted(number: int) -> str:
    """A count as people say it: 12,345 or 3.4 million."""
    for size, name in ((1e9, "billion"), (1e6, "million")):
        if number >= size:
            return f"{number / size:.1f} {name}"
    return f"{number:,}"
