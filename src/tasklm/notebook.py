"""How a model, its report and an explanation look in a notebook; plain text elsewhere.

All texts from the data are escaped.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tasklm.analysis.word_counts import spans
from tasklm.bill.lines import HEADER, rows_of, sentences
from tasklm.bill.record import Bill
from tasklm.evaluate.scores import (
    Scores,
    flops_text,
    interval_text,
    metric_name,
    over_seeds,
    spread_text,
    time_text,
)
from tasklm.influence.evidence import Attribution, Explanation
from tasklm.recipe.toml import without_login
from tasklm.report.page import Html, el, escaped

MOST_LABELS = 30  # listed; the rest are only counted
MOST_TEXT = 300  # characters of a text that are shown
HEIGHT = "40rem"  # of a report in a notebook


@dataclass(frozen=True)
class Report(os.PathLike[str]):
    """The report of a run: a path, which a notebook shows as the page itself."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    def __fspath__(self) -> str:
        return str(self.path)

    def _repr_html_(self) -> str:
        # srcdoc, because a notebook cannot open local files; the sandbox keeps the page's scripts
        # away from the notebook.
        page = self.path.read_text(encoding="utf-8")
        return el(
            "iframe",
            srcdoc=page,
            sandbox="allow-scripts",
            title="report",
            style=f"width:100%;height:{HEIGHT};border:0",
        )


@dataclass(frozen=True)
class ShownExplanation(Explanation):
    """An explanation that a notebook shows as tables, and `print` as lines."""

    @classmethod
    def of(cls, explanation: Explanation) -> ShownExplanation:
        """The same explanation, ready for display."""
        return cls(
            **{field.name: getattr(explanation, field.name) for field in fields(Explanation)}
        )

    def _sides(self) -> list[tuple[str, list[Attribution]]]:
        sides = []
        for what, attributions in (
            ("training examples", self.examples),
            ("selected passages", self.passages),
        ):
            if attributions is not None:
                read = f"({attributions.compared:,} of {attributions.in_all:,} compared)"
                sides.append((f"{what} that support it {read}", attributions.supporting))
                sides.append((f"{what} that speak against it {read}", attributions.opposing))
        return sides

    def __str__(self) -> str:
        lines = [self._headline()]
        for title, side in self._sides():
            lines.append(f"{title}:" + ("" if side else " none"))
            lines += [
                f"  {one.score:+.3f}  {_labelled(one)}{_cut(one.text)}  ({_place(one)})"
                for one in side
            ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        parts = [
            el("p", el("strong", self._headline())),
            el("blockquote", _cut(self.text), dir="auto"),
        ]
        for title, side in self._sides():
            parts.append(el("p", title if side else f"{title}: none"))
            if side:
                labelled = side[0].label is not None
                head = ("score", *(["label"] if labelled else []), "text", "where")
                rows = [
                    (
                        f"{attribution.score:+.3f}",
                        *([attribution.label] if labelled else []),
                        _marked(attribution),
                        _place(attribution),
                    )
                    for attribution in side
                ]
                parts.append(_table(head, rows))
        return el("div", *parts)

    def _headline(self) -> str:
        if self.probability is None:
            return self.label
        return f"{self.label} (probability {self.probability:.2f})"


@dataclass(frozen=True)
class ShownBill:
    """The bill of text of a model, which a notebook shows as a table, and `print` as lines."""

    bill: Bill

    def __str__(self) -> str:
        lines = ["  ".join(cell for cell in row.cells() if cell) for row in rows_of(self.bill)]
        return "\n".join([*lines, *sentences(self.bill)])

    def to_dict(self) -> dict[str, Any]:
        """All of it, as in bill.json."""
        return self.bill.to_dict()

    def _repr_html_(self) -> str:
        rows = [row.cells() for row in rows_of(self.bill)]
        return el("div", _table(HEADER, rows), *(el("p", one) for one in sentences(self.bill)))


def settings_html(name: str, settings: Mapping[str, Any]) -> str:
    """The settings of a model that has not been trained."""
    given = [
        (key, repr(_without_logins(value)))
        for key, value in settings.items()
        if value is not None and value is not False
    ]
    if not given:
        state = "not trained yet: call fit; all settings are automatic"
        return el("div", el("p", el("strong", name), f" ({state})"))
    title = el("p", el("strong", name), " (not trained yet: call fit)")
    return el("div", title, _table(("setting", "value"), given))


def model_html(
    name: str, kind: str, labels: Sequence[str], scores: Scores | None, folder: Path
) -> str:
    """A trained model: verdict, score table, labels, and where it is stored."""
    parts = [el("p", el("strong", name), f", kind {kind}, trained: {folder}")]
    if scores is not None:
        on_test = any(row.test is not None for row in scores.rows)
        rows = [
            (
                row.name,
                spread_text(row.dev),
                *([spread_text(row.test)] if on_test else []),
                flops_text(row.flops_exact or row.flops_6nd),
                time_text(row.seconds),
            )
            for row in scores.rows
        ]
        strong = {at for at, row in enumerate(scores.rows) if row.kind == "ours"}
        head = ("model", "dev", *(["test"] if on_test else []), "FLOPs", "time")
        parts += [
            el("p", scores.verdict),
            el("p", f"{metric_name(scores.metric)} × 100, {over_seeds(scores)}"),
            _table(head, rows, strong),
        ]
        if on_test:
            interval = f"[{scores.confidence:.0%} interval]; {interval_text(scores)}"
            parts.append(el("p", interval))
    if labels:
        more = f" and {len(labels) - MOST_LABELS:,} more" if len(labels) > MOST_LABELS else ""
        parts.append(
            el("p", f"{len(labels):,} labels: ", ", ".join(map(str, labels[:MOST_LABELS])), more)
        )
    return el("div", *parts)


def _without_logins(value: Any) -> Any:
    """A setting, or several, without the passwords of servers."""
    if isinstance(value, Mapping):
        return {key: _without_logins(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_without_logins(one) for one in value]
    return without_login(value) if isinstance(value, str) else value


def _table(
    head: Sequence[str], rows: Sequence[Sequence[Any]], strong: set[int] | None = None
) -> Html:
    lines = [
        el(
            "tr",
            *(
                el(
                    "td",
                    el("strong", cell) if strong and at in strong else cell,
                    dir="auto",
                    style="text-align:left",
                )
                for cell in row
            ),
        )
        for at, row in enumerate(rows)
    ]
    return el(
        "table",
        el("thead", el("tr", *(el("th", cell, style="text-align:left") for cell in head))),
        el("tbody", *lines),
    )


def _marked(attribution: Attribution) -> Html:
    """The shortened text with the shared words marked."""
    line, parts, at = _cut(attribution.text), [], 0
    for start, end in spans(line, set(attribution.shared)):
        parts += [escaped(line[at:start]), el("mark", line[start:end])]
        at = end
    return Html("".join([*parts, escaped(line[at:])]))


def _place(attribution: Attribution) -> str:
    """Where the text comes from; for a training file the name is enough."""
    return attribution.where if attribution.label is None else attribution.where.rsplit("/", 1)[-1]


def _labelled(attribution: Attribution) -> str:
    return "" if attribution.label is None else f"[{attribution.label}] "


def _cut(text: str) -> str:
    line = " ".join(text[: 2 * MOST_TEXT].split())
    if len(line) <= MOST_TEXT and len(text) <= 2 * MOST_TEXT:
        return line
    return line[: MOST_TEXT - 1].rstrip() + "…"
