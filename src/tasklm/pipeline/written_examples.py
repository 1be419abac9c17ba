"""Written texts in the results of a run: its score on dev, and the examples of its report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tasklm.evaluate.scores import Scores
from tasklm.pipeline.context import Trained
from tasklm.tasks.base import Label, Task
from tasklm.tasks.examples import Example
from tasklm.tasks.writing import writes

SHOWN = 12
BY = "chrf"  # the metric by which they are in order


def dev_of_best(trained: Trained, scores: Scores) -> float:
    """The score on dev of the best seed: of a kind that writes that with a beam, by which epochs
    are not judged.
    """
    row = scores.ours
    if writes(trained.task.task) and row is not None and row.dev is not None:
        return float(row.dev.values[trained.best_place])
    return float(trained.best.summary()["dev"])


def written_examples(
    task: Task, examples: Sequence[Example], labels: Sequence[Label]
) -> list[dict[str, Any]]:
    """Evenly spaced examples from the worst to the best; none where no texts are written."""
    if not writes(task) or not examples:
        return []
    metric = task.metric(BY)
    counts = metric.statistics([example.label for example in examples], labels)
    scores = metric.value(counts)
    order = np.argsort(scores, kind="stable")
    places = np.unique(np.linspace(0, len(order) - 1, SHOWN).round().astype(int))
    return [
        {
            "source": examples[number].texts[0],
            "gold": examples[number].label[0],
            "predicted": str(labels[number]),
            "score": float(scores[number]),
            "where": f"{examples[number].file}, line {examples[number].line}",
        }
        for number in order[places].tolist()
    ]
