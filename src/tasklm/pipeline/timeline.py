"""The steps of a run as its clock counts them: where the time went."""

from __future__ import annotations

from collections.abc import Mapping

from tasklm.console.durations import duration

DATA, LINEAR, CORPUS = "start and data", "linear model", "corpus"
PLAN, SELECTION, TOKENS = "measuring this machine", "selection", "tokens"
STAGE1, STAGE2 = "stage 1", "stage 2"
BASELINES, ABLATIONS, SCORES = "predictions and baselines", "ablations", "scores"
ANALYSES, REPORT = "analyses", "report"
FLOW = (
    *(DATA, LINEAR, CORPUS, PLAN, SELECTION, TOKENS, STAGE1, STAGE2),
    *(BASELINES, ABLATIONS, SCORES, ANALYSES, REPORT),
)
SHORTEST = 0.5  # seconds that are worth a word


def long_steps(steps: Mapping[str, float]) -> dict[str, float]:
    """The seconds of the steps that took a while, in the order of the flow."""
    return {step: steps[step] for step in FLOW if steps.get(step, 0.0) >= SHORTEST}


def up_to_report(steps: Mapping[str, float]) -> dict[str, float]:
    """The same without the step that writes the report, which cannot know its own time: then a
    report that is written again is the same.
    """
    return long_steps({step: seconds for step, seconds in steps.items() if step != REPORT})


def timeline_text(steps: Mapping[str, float]) -> str:
    """The steps that took a while, in one line."""
    return " · ".join(f"{step} {duration(seconds)}" for step, seconds in long_steps(steps).items())
