"""The mean of the weights of all seeds of a training as one more candidate for the model (*Model
soups: averaging weights of multiple fine-tuned models improves accuracy without increasing
inference time*, arXiv 2203.05482).
"""

from __future__ import annotations

from tasklm.evaluate.intervals import Predicted
from tasklm.evaluate.scores import Row
from tasklm.pipeline import evaluation
from tasklm.pipeline.context import Trained


def soup_rows(ours: Trained, ours_test: Predicted | None) -> list[Row]:
    """The row of the models with mean weights, one for each training of stage 1, if they are
    wanted and there are several seeds to average.
    """
    run, seeds = ours.run, ours.seeds
    if not run.recipe.finetune.soup:
        return []
    tunings = len(seeds) // ours.trainings
    if tunings == 1:
        run.tracker.say("finetune.soup needs several seeds; set finetune.seeds to 2 or more")
        return []
    if evaluation.is_linear(ours.parts, seeds):
        run.tracker.say("finetune.soup: no network was better on dev than the linear model")
        return []
    together = evaluation.predict_soups(run, ours.task, ours.parts, seeds)
    title = f"mean weights of {tunings} seeds"
    return [evaluation.model_row(ours, title, "soup", together, ours_test)]


def is_better(soup: Row, own: Row) -> bool:
    """Whether a model with mean weights is better on dev than every seed."""
    assert soup.dev is not None and own.dev is not None
    return max(soup.dev.values) > max(own.dev.values)
