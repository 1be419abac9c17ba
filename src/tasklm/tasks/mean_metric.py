"""The mean of the metrics of several tasks, each over its own examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tasklm.tasks.base import Floats, Label, Metric


class MeanMetric:
    """The mean over tasks; a label is the name of a task and the label there.

    Tasks without an example, as where only some have a test set, do not count.
    """

    def __init__(self, name: str, metrics: Mapping[str, Metric]) -> None:
        self.name, self.metrics = name, metrics
        self._widths = dict.fromkeys(metrics, 0)  # numbers of a task's own statistics

    def statistics(self, gold: Sequence[Label], predicted: Sequence[Label]) -> Floats:
        """An array (examples, numbers): for each task a 1, and its own statistics."""
        blocks = []
        for name, metric in self.metrics.items():
            places = [place for place, label in enumerate(gold) if label[0] == name]
            if places:
                own = metric.statistics(
                    [gold[place][1] for place in places],
                    [predicted[place][1] for place in places],
                )
                self._widths[name] = own.shape[1]
            block = np.zeros((len(gold), 1 + self._widths[name]))
            if places:
                block[places, 0], block[places, 1:] = 1.0, own
            blocks.append(block)
        return np.concatenate(blocks, axis=1)

    def value(self, sums: Floats) -> Floats:
        """The mean of the tasks' scores."""
        values, counted, first = [], [], 0
        for name, metric in self.metrics.items():
            last = first + 1 + self._widths[name]
            present = sums[..., first] > 0
            counted.append(present)
            if self._widths[name]:
                values.append(np.where(present, metric.value(sums[..., first + 1 : last]), 0.0))
            else:
                values.append(np.zeros(present.shape))
            first = last
        return np.asarray(np.sum(values, axis=0) / np.maximum(1, np.sum(counted, axis=0)))
