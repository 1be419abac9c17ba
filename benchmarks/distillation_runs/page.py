"""The page of distillation.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from distillation_runs.results import Interval, Result
from several_runs.tables import table


class Page:
    """The results of all tasks as two tables."""

    def __init__(self, results: Sequence[Result], settings: Mapping[str, Any]) -> None:
        self.results, self.settings = results, settings

    def markdown(self) -> str:
        """The whole page."""
        lines = ["# What an ensemble teaches one model", ""]
        lines += ["Written by `benchmarks/distillation.py`. Scores are × 100.", ""]
        lines += ["## A student of the same size", "", *self._same_size()]
        lines += ["## A student of a smaller size", "", *self._small()]
        return "\n".join([*lines, "## Notes", "", *self._notes(), ""])

    def _same_size(self) -> list[str]:
        together = f"{self.settings['seeds']} seeds together"
        header = ["task", "metric", "examples", "one seed", together, "gain", "taught by them"]
        rows = [
            [
                one.task,
                one.metric,
                f"{one.examples:,} of {one.split}",
                _text(one.single),
                _text(one.ensemble),
                _text(one.gain, "+"),
                _text(one.student),
                _text(one.students_gain, "+"),
                _share_text(one.share),
            ]
            for one in self.results
        ]
        lines = table([*header, "its gain", "gain kept"], rows)
        if len(self.results) > 1:
            gain = fmean(one.gain.value for one in self.results)
            students = fmean(one.students_gain.value for one in self.results)
            share = f": {students / gain:.0%} of it is kept" if gain > 0 else ""
            lines += [
                f"Mean over tasks: together the seeds gain {gain:+.1f}, their student "
                f"{students:+.1f}{share}.",
                "",
            ]
        return lines

    def _small(self) -> list[str]:
        header = ["task", "teachers", "student", "alone", "taught", "difference", "p"]
        rows = [
            [
                one.task,
                one.shape,
                one.small_shape,
                _text(one.small_alone),
                _text(one.small_taught),
                _text(one.small_gain, "+"),
                f"{one.p:.3f}",
            ]
            for one in self.results
        ]
        lines = table(header, rows)
        if len(self.results) > 1:
            gain = fmean(one.small_gain.value for one in self.results)
            lines += [f"Mean over tasks: teachers bring the small student {gain:+.1f}.", ""]
        return lines

    def _notes(self) -> list[str]:
        settings = self.settings
        lines = [
            "- Of one seed, of students and of the small model alone: the mean over seeds "
            f"({settings['seeds']} of the teachers, {settings['students']} of each other).",
            "- In brackets: 95 % of the resamples of examples and of seeds; models are compared on "
            "the same examples.",
            "- **Gain kept**: how much of what all seeds together have over one of them the student "
            "has. “–”: together they gain nothing, or not in 95 % of the resamples.",
            "- The student of the same size begins with the stage 1 of its teachers. Small models "
            "have a stage 1 of their own, and both the same.",
        ]
        if settings["passages"]:
            lines.append(
                f"- Students also learn from {settings['passages']:,} selected passages, with the "
                "labels that their teachers give them."
            )
        given = [f"`{settings[name]}`" for name in ("recipe", "extra") if settings[name]]
        return [*lines, f"- Settings: {', '.join(given)}."] if given else lines


def _text(one: Interval, sign: str = "") -> str:
    return f"{one.value:{sign}.1f} ({one.low:{sign}.1f} to {one.high:{sign}.1f})"


def _share_text(share: Interval | None) -> str:
    if share is None:
        return "–"
    return f"{share.value:.0%} ({share.low:.0%} to {share.high:.0%})"
