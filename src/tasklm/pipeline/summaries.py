"""The short lines in which a run reports its data, its plan and its results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tasklm.budget.rules import Plan
from tasklm.console.durations import duration
from tasklm.encoders.shapes import layers_and_width
from tasklm.evaluate.scores import flops_text, metric_name, spread, spread_text
from tasklm.pipeline.context import CorpusData, TaskData
from tasklm.recipe.schema import Recipe
from tasklm.tasks.several import members_of

NO_CORPUS = "none; add --corpus to give the model more text to learn from"


def data_text(recipe: Recipe, task: TaskData) -> str:
    """The number of examples per split, and of labels."""
    sizes = [f"{name} {len(part):,}" for name, part in task.splits.named().items()]
    if not recipe.data.dev and not recipe.several.tasks:
        sizes = [f"{size} (from train)" if size.startswith("dev ") else size for size in sizes]
    if members := members_of(task.task):
        counts = [f"{one.name} {len(one.own(task.splits.train)):,}" for one in members]
        return f"{', '.join(sizes)} examples; {len(members)} tasks, train: {', '.join(counts)}"
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
    """The size of the model, the amount of text it reads, and its budget, in one line."""
    layers, width = layers_and_width(recipe.model, plan.size)
    named = recipe.model.layers is None and recipe.model.width is None
    parts = [f"{layers}-layer model of width {width}"]
    if named:
        parts = [f"{plan.size} model ({plural(layers, 'layer')}, width {width})"]
    if not selects:
        parts.append("task text only")
    elif plan.passages is None:
        parts.append("all matching passages")
    else:
        parts.append(f"at most {plan.passages:,} passages")
    if recipe.train.steps is not None:
        parts.append(plural(recipe.train.steps, "step"))
    elif plan.seconds is not None:
        parts.append(f"{duration(plan.seconds)} in total")
    elif plan.flops is not None:
        parts.append(f"{flops_text(plan.flops)} FLOPs")
    return ", ".join(parts)


def stage1_text(summary: dict[str, Any]) -> str:
    """The result of stage 1, from its summary."""
    steps, tokens = plural(summary["steps"], "step"), counted(summary["tokens"])
    measured = ""
    if "held_out" in summary:
        measured = f"; loss {summary['held_out']['loss']:.3f} on held-out text"
    return f"{steps}, {tokens} tokens read, in {duration(summary['seconds'])}{measured}"


def stage2_text(summaries: Sequence[dict[str, Any]], metric: str) -> str:
    """The dev score of stage 2, from the summaries of its seeds."""
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
    """A readable count: 12,345 or 3.4 million."""
    for size, name in ((1e9, "billion"), (1e6, "million")):
        if number >= size:
            return f"{number / size:.1f} {name}"
    return f"{number:,}"
