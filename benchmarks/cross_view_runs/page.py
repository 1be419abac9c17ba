"""The page of cross_view.py: tables, the published numbers beside them, and figures."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from charts import Mark, chart, curves
from cross_view_runs import published
from cross_view_runs.plan import (
    BILM,
    FROZEN,
    NO_NEIGHBOURS,
    NO_SIDES,
    NONE,
    ONE_TASK,
    RANDOM,
    SELECTED,
)
from cross_view_runs.results import Results, of_task
from cross_view_runs.tables import gains, paired_p, table, written
from tasklm.evaluate.scores import metric_name
from tasklm.recipe.raw_text import CROSS_VIEW

SPLITS = ("dev", "test")
STUDENTS = (NONE, CROSS_VIEW, "word-dropout", "vat")
TITLES = {NONE: "labels alone", NO_SIDES: "… without forward, backward"}
TITLES |= {NO_NEIGHBOURS: "… without future, past"}
_PAPER = (
    '"Semi-Supervised Sequence Modeling with Cross-View Training" (arXiv 1809.08370), as its '
    "author's thesis numbers them"
)
Figures = dict[str, str]  # name of the file → SVG


class Page:
    """The page of all results of a work folder."""

    def __init__(self, record: Mapping[str, Any], columns: Mapping[str, str]) -> None:
        self.record, self.columns = record, columns  # columns: task → that of published tables
        self.results = Results(record["runs"])
        self.figures: Figures = {}

    def markdown(self) -> str:
        """The whole page; the figures that it names are then in `figures`."""
        seeds = self.record["settings"]["seeds"]
        lines = ["# Text without labels", "", "Written by `benchmarks/cross_view.py`.", ""]
        lines += [f"The tables of {_PAPER}, with models of tasklm. Scores are × 100: means over"]
        lines += [f"{seeds} seeds of stage 2 and their 95 % intervals.", ""]
        for task in self.results.tasks():
            lines += [*self._shares(task), *self._widths(task), *self._learning(task)]
        lines += [*self._texts(), *self._several(), *self._views(), *self._frozen()]
        return "\n".join([*lines, *self._notes(), ""])

    def _shares(self, task: str) -> list[str]:
        usual = {"tasks": [task], "width": None, "selection": SELECTED, "start": ""}
        shares = self.results.values("share", **usual)
        ways = self.results.values("way", **usual)
        students = [way for way in STUDENTS if way in ways]
        lines: list[str] = []
        for split in SPLITS:
            rows = {
                share: {way: self.results.seeds(task, share, way, split) for way in students}
                for share in shares
            }
            if not any(map(any, (row.values() for row in rows.values()))):
                continue
            metric = metric_name(self.results.metric(task))
            lines += [f"## {task} by the share of labels: {split}, {metric}", ""]
            if split == "dev":
                names = [f"{share:g} %" for share in shares]
                marks = {way: [_mark(row[way]) for row in rows.values()] for way in students}
                title = f"{task}, dev by the share of labels"
                lines += self._figure(f"{task}-shares", chart(title, names, marks, "labels", True))
            lines += table(
                ["labels", "examples", *students],
                [
                    [f"{share:g} %", self._examples(task, share), *map(written, row.values())]
                    for share, row in rows.items()
                ],
            )
            lines += _gains(rows, students)
        return lines

    def _examples(self, task: str, share: float) -> str:
        there = [self.results.one([task], share, way) for way in STUDENTS]
        return next((f"{one['examples']:,}" for one in there if one is not None), "")

    def _widths(self, task: str) -> list[str]:
        widths = self.results.values("width", tasks=[task])
        rows = {}
        for width in widths:
            (share, *_) = reversed(self.results.values("share", tasks=[task], width=width))
            rows[width] = {
                way: self.results.seeds(task, share, way, "dev", width=width)
                for way in (NONE, CROSS_VIEW)
            }
        if not rows:
            return []
        marks = {way: [_mark(row[way]) for row in rows.values()] for way in (NONE, CROSS_VIEW)}
        title = f"{task}, dev by the width of the encoder"
        lines = [f"## {task} by the width of the encoder, dev", ""]
        picture = chart(title, [str(width) for width in widths], marks, "width", True)
        lines += self._figure(f"{task}-widths", picture)
        header = ["width", TITLES[NONE], CROSS_VIEW, "gain"]
        body = []
        for width, row in rows.items():
            gain = written(gains(row[CROSS_VIEW], row[NONE]), True)
            body.append([str(width), written(row[NONE]), written(row[CROSS_VIEW]), gain])
        return lines + table(header, body)

    def _learning(self, task: str) -> list[str]:
        """Dev against train while the first seed learns, with the most labels there are."""
        shares = self.results.values("share", tasks=[task], width=None, start="")
        series = {}
        for way in (NONE, CROSS_VIEW):
            result = self.results.one([task], shares[-1], way) if shares else None
            if result is not None and any(result["curves"]):
                series[way] = result["curves"][0]
        if not series:
            return []
        title = f"{task}, {shares[-1]:g} % of the labels: dev against train while learning"
        lines = [f"## {task}: dev against train while learning", ""]
        lines += self._figure(f"{task}-learning", curves(title, series, "score on train"))
        return [*lines, "Score on dev (upwards) and on 500 examples of train, first seed.", ""]

    def _texts(self) -> list[str]:
        """Each text that cross-view training reads alone, and that of BM25 against random text."""
        rows, differences = [], dict[str, list[float]]()
        for task in self.results.tasks():
            for share in self.results.values("share", tasks=[task]):
                for split in SPLITS:
                    rows += self._text_rows(task, share, split)
                    pair = gains(
                        *(self._read(task, share, split, one) for one in (SELECTED, RANDOM))
                    )
                    differences.setdefault(split, []).extend(pair or ())
        if not rows:
            return []
        header = ["task", "labels", "split", "text", TITLES[NONE], CROSS_VIEW, "gain"]
        lines = ["## Which text", "", *table(header, rows)]
        for split, values in differences.items():
            if values:
                p = paired_p(values)
                sure = f"p {p:.3f} (paired t-test)" if p is not None else "too few for a test"
                about = f"{written(values, True)} over {len(values)} pairs of equal task, share and"
                lines.append(f"- BM25 − random, {split}: {about} seed, {sure}.")
        return [*lines, ""]

    def _read(self, task: str, share: float, split: str, text: str) -> list[float] | None:
        selection = RANDOM if text == RANDOM else SELECTED
        return self.results.seeds(task, share, f"text-{text}", split, selection=selection)

    def _text_rows(self, task: str, share: float, split: str) -> list[list[str]]:
        ways = self.results.values("way", tasks=[task], share=share)
        rows = []
        for way in ways:
            text = way.removeprefix("text-")
            scores = self._read(task, share, split, text)
            if text == way or scores is None:
                continue
            selection = RANDOM if text == RANDOM else SELECTED
            alone = self.results.seeds(task, share, NONE, split, selection=selection)
            cells = [written(alone), written(scores), written(gains(scores, alone), True)]
            rows.append([task, f"{share:g} %", split, text, *cells])
        return rows

    def _several(self) -> list[str]:
        there = [one for one in self.results.results if one["way"] == ONE_TASK]
        if not there:
            return []
        turns = there[0]
        tasks, share = turns["tasks"], turns["share"]
        whole = self.results.one(tasks, share, CROSS_VIEW)
        rows = []
        for title, result, theirs in (
            ("all tasks learn from each batch", whole, published.ALL_TASKS),
            ("one task", turns, published.ONE_TASK),
        ):
            scores = [of_task(result, task, "dev") for task in tasks]
            rows.append(
                [
                    title,
                    *(
                        self._beside(one, task, theirs)
                        for one, task in zip(scores, tasks, strict=True)
                    ),
                ]
            )
        differences = [
            written(gains(of_task(whole, task, "dev"), of_task(turns, task, "dev")), True)
            for task in tasks
        ]
        rows.append(["difference", *differences])
        lines = ["## Table 4.3: one model of several tasks, dev", ""]
        return [*lines, *table(["", *tasks], rows)]

    def _views(self) -> list[str]:
        tasks = [
            task
            for task in self.results.tasks()
            if {NO_SIDES, NO_NEIGHBOURS} & set(self.results.values("way", tasks=[task]))
        ]
        if not tasks:
            return []

        def seeds(task: str, way: str) -> list[float] | None:
            (share, *_) = reversed(self.results.values("share", tasks=[task], width=None, start=""))
            return self.results.seeds(task, share, way, "dev")

        lines = ["## Table 4.4: what the views bring, dev", ""]
        return lines + self._rows(tasks, published.VIEWS, seeds)

    def _frozen(self) -> list[str]:
        tasks = [
            task
            for task in self.results.tasks()
            if FROZEN in self.results.values("way", tasks=[task])
        ]
        if not tasks:
            return []

        def seeds(task: str, row: str) -> list[float] | None:
            (share, *_) = reversed(self.results.values("share", tasks=[task], width=None))
            if row == NONE:
                return self.results.seeds(task, share, NONE, "dev")
            starts = self.results.values("start", tasks=[task], way=FROZEN)
            start = [one for one in starts if (one == BILM) is (row == BILM)]
            if not start:
                return None
            return self.results.seeds(task, share, FROZEN, "dev", start=start[0])

        lines = ["## Table 4.5: a new head on features that do not learn, dev", ""]
        return lines + self._rows(tasks, published.FROZEN, seeds)

    def _rows(
        self,
        tasks: Sequence[str],
        rows: Mapping[str, published.Row],
        seeds: Callable[[str, str], list[float] | None],
    ) -> list[str]:
        """A table of named rows, the published number beside each of ours."""
        titles = {**TITLES, "views": "frozen, of the other tasks", BILM: "frozen, of bilm"}
        body = [
            [
                titles.get(row, row),
                *(self._beside(seeds(task, row), task, theirs) for task in tasks),
            ]
            for row, theirs in rows.items()
        ]
        return table(["ours (published)", *tasks], body)

    def _beside(self, scores: list[float] | None, task: str, theirs: published.Row) -> str:
        column = self.columns.get(task, "")
        known = f" ({theirs[column]:g})" if column in theirs else ""
        return f"{written(scores)}{known}".strip()

    def _figure(self, name: str, picture: str) -> list[str]:
        """The line that shows a figure, which is remembered."""
        file = f"cross-view-{name}.svg"
        self.figures[file] = picture
        return [f"![{name}]({file})", ""]

    def _notes(self) -> list[str]:
        settings = self.record["settings"]
        lines = ["## Notes", "", *_NOTES]
        given = [f"`{settings[name]}`" for name in ("recipe", "extra") if settings[name]]
        lines += [f"- Settings: {', '.join(given)}."] if given else []
        if settings["steps"]:
            lines.append(
                f"- Steps on labels in stage 2: {settings['steps']:,}, whatever the share."
            )
        minutes = sum(result["minutes"] for result in self.record["runs"])
        lines.append(f"- {len(self.record['runs'])} runs took {minutes:.0f} minutes in sum.")
        return lines + [f"- No result: {reason}." for reason in self.record["failed"]]


_NOTES = (
    "- The texts of train whose labels are hidden, and passages that BM25 selects, are read without labels. Runs of one task, share and width "
    "begin with the same stage 1, and take the same steps on labels. **Gains** are seed by seed.",
    "- **Which text**: the student reads that text alone. Random text is also what the vocabulary and the first embeddings are made from, "
    "which is why it has labels alone of its own.",
    "- **Published** numbers are of other data for tags and trees, of a larger encoder, and of GloVe vectors.",
)


def _mark(seeds: list[float] | None) -> Mark | None:
    if not seeds:
        return None
    spread = statistics.stdev(seeds) if len(seeds) > 1 else 0.0
    return Mark(statistics.fmean(seeds), spread, seeds)


def _gains(
    rows: Mapping[float, Mapping[str, list[float] | None]], students: Sequence[str]
) -> list[str]:
    """What each student adds to labels alone."""
    others = [way for way in students if way != NONE]
    if NONE not in students or not others:
        return []
    body = [
        [f"{share:g} %", *(written(gains(row[way], row[NONE]), True) for way in others)]
        for share, row in rows.items()
    ]
    return ["Gain over labels alone:", "", *table(["labels", *others], body)]
