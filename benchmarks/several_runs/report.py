"""The page of several_tasks.py: the tables of the thesis with tasklm's scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from several_runs import plan, published
from several_runs.data import metric_of
from several_runs.running import EACH
from several_runs.tables import (
    MEAN,
    Strategy,
    corrected,
    difference_text,
    differences,
    strategy_of,
    table,
)
from tasklm.evaluate.scores import metric_name

TITLES = {
    plan.SINGLE: "Single",
    plan.MULTI: "Multi",
    plan.BORN_AGAIN: "Single→Single",
    plan.MULTI_AGAIN: "Multi→Multi",
    plan.JOINED: "Single→Multi",
}
TESTED = (  # each strategy against the one that it should be better than
    (plan.MULTI, plan.SINGLE),
    (plan.BORN_AGAIN, plan.SINGLE),
    (plan.MULTI_AGAIN, plan.MULTI),
    (plan.JOINED, plan.SINGLE),
    (plan.JOINED, plan.MULTI),
)
ABLATION_TITLES = {
    "labels-never": "teachers alone: λ = 0",
    "labels-half": "λ = 0.5 throughout",
    "drawn-by-size": "tasks drawn by size: power 1",
}
_PAPER = (
    '"BAM! Born-Again Multi-Task Networks for Natural Language Understanding" (arXiv 1907.04829)'
)


class Page:
    """The page of all results there are: runs by name, each task → scores."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        self.record = record
        self.runs: dict[str, Any] = record["runs"]
        self.tasks: list[str] = record["settings"]["tasks"]
        self.tables: list[str] = record["settings"]["tables"]

    def strategy(self, name: str, split: str, tasks: Sequence[str] = ()) -> Strategy | None:
        """The scores of a strategy by its name; None unless all of its runs are finished."""
        wanted = tasks or self.tasks
        names = [name] if name in self.runs else [f"{name}/{task}" for task in wanted]
        if any(one not in self.runs for one in names):
            return None
        title = TITLES.get(name, name)
        return strategy_of(title, [self.runs[one] for one in names], wanted, split)

    def markdown(self) -> str:
        """The whole page."""
        lines = [
            "# Several tasks in one model",
            "",
            "Written by `benchmarks/several_tasks.py`.",
            "",
        ]
        lines += [f"The tables of {_PAPER}, as its author's thesis numbers them, with models of"]
        lines += ["tasklm trained from scratch. Scores are × 100.", "", *self._data()]
        parts = {"3.1": self._main, "3.3": self._tuned, "3.4": self._ablations, "3.5": self._rte}
        for name, part in parts.items():
            if name in self.tables:
                lines += part()
        return "\n".join([*lines, *self._notes(), ""])

    def _data(self) -> list[str]:
        rows = []
        for task in self.tasks:
            about = self.record["data"][task]
            sizes = [f"{about['examples'][split]:,}" for split in ("train", "dev", "test")]
            dropped = [f"{about['dropped'][name]:,}" for name in ("own", "across")]
            rows.append([task, metric_name(metric_of(task)), *sizes, *dropped])
        header = ["task", "metric", "train", "dev", "test", "dropped, own", "dropped, others'"]
        return table(header, rows)

    def _main(self) -> list[str]:
        lines = []
        for split in ("dev", "test"):
            rows = {name: self.strategy(name, split) for name in TITLES}
            there = [one for one in rows.values() if one is not None]
            if not there:
                continue
            if split == "dev":
                there += self._best_epochs()
            columns = [MEAN, *there[0].values]
            lines += [f"## Table 3.1: strategies, {split}", "", "Medians over seeds.", ""]
            lines += table(
                ["", *columns],
                [
                    [one.title, *(f"{one.median(column):.1f}" for column in columns)]
                    for one in there
                ],
            )
            tests = [
                [f"{TITLES[name]} − {TITLES[other]}", *self._tested(rows[name], rows[other])]
                for name, other in TESTED
                if rows[name] is not None and rows[other] is not None
            ]
            lines += table(["difference", *columns], tests) if tests else []
        rows = [[name, *map(str, values)] for name, values in published.STRATEGIES.items()]
        lines += ["Published, BERT-Large, dev:", ""]
        return lines + table(["", MEAN, *published.COLUMNS], rows)

    def _best_epochs(self) -> list[Strategy]:
        """Models of several tasks where each task has the epoch that is best for it alone, as
        models of single tasks have.
        """
        rows = {name: self.strategy(name, EACH) for name in (plan.MULTI, plan.JOINED)}
        return [
            Strategy(f"{TITLES[name]}, best epoch of each task", one.values)
            for name, one in rows.items()
            if one is not None and len(one.values) == len(self.tasks)
        ]

    def _tested(self, one: Strategy | None, other: Strategy | None) -> list[str]:
        assert one is not None and other is not None
        return [difference_text(value) for value in differences(one, other).values()]

    def _tuned(self) -> list[str]:
        lines = ["## Table 3.3: then fine-tuned on each task", ""]
        rows = []
        for name, before in plan.TUNED.items():
            for split in ("dev", "test"):
                first, then = self.strategy(before, split), self.strategy(name, split)
                if first is None or then is None:
                    continue
                best = self._best_seed(before)
                gains = {
                    task: then.median(task) - first.values[task][best] for task in first.values
                }
                mean = sum(gains.values()) / len(gains)
                cells = [f"{gains[task]:+.1f}" if task in gains else "" for task in self.tasks]
                rows.append([f"{TITLES[before]}, {split}", f"{mean:+.1f}", *cells])
        if not rows:
            return []
        lines += table(["gain", MEAN, *self.tasks], rows)
        gained = ", ".join(f"{name} {gain:+.1f}" for name, gain in published.TUNED.items())
        return [*lines, f"Published, mean on dev: {gained}.", ""]

    def _best_seed(self, name: str) -> int:
        """The seed of a run that is kept as its model: the best on dev."""
        strategy = self.strategy(name, "dev")
        assert strategy is not None
        return strategy.averages.index(max(strategy.averages))

    def _ablations(self) -> list[str]:
        whole = self.strategy(plan.JOINED, "dev")
        if whole is None:
            return []
        rows = [[whole.title, f"{whole.median(MEAN):.1f}", "", ""]]
        others = {name: self.strategy(name, "dev") for name in plan.ABLATIONS}
        there = {name: one for name, one in others.items() if one is not None}
        tests = corrected({name: differences(one, whole)[MEAN] for name, one in there.items()})
        for name, one in there.items():
            cells = [f"{one.median(MEAN):.1f}", difference_text(tests[name])]
            rows.append([ABLATION_TITLES[name], *cells, f"{published.ABLATIONS[name]:+.1f}"])
        lines = ["## Table 3.4: what Single→Multi needs", ""]
        return lines + table(["", "mean, dev", "difference", "published"], rows)

    def _rte(self) -> list[str]:
        names = plan.company(self.tasks)
        runs = {
            "alone": self.strategy(plan.BORN_AGAIN, "dev", [plan.SMALL]),
            **{", ".join(tasks[1:]): self.strategy(name, "dev", tasks) for name, tasks in names},
            "all": self.strategy(plan.JOINED, "dev"),
        }
        there = {name: _only(one, plan.SMALL) for name, one in runs.items() if one is not None}
        if "alone" not in there:
            return []
        alone = there["alone"]
        tests = corrected(
            {name: differences(one, alone)[MEAN] for name, one in there.items() if one is not alone}
        )
        rows = []
        for name, one in there.items():
            cell = difference_text(tests[name]) if name in tests else ""
            rows.append([name, f"{one.median(MEAN):.1f}", cell, str(published.RTE.get(name, ""))])
        lines = ["## Table 3.5: RTE, trained together with", ""]
        return lines + table(["", "RTE, dev", "difference", "published"], rows)

    def _notes(self) -> list[str]:
        settings = self.record["settings"]
        lines = ["## Notes", "", _ABOUT, _STAGE1[settings["stage1"]]]
        lines += [note for name, note in _TABLE_NOTES.items() if name in self.tables]
        if settings["labels"]:
            lines.append(
                f"- Of each training set {settings['labels']:,} examples were used, those with the"
                " lowest hashes of their texts."
            )
        if settings["scored"]:
            lines.append(f"- Of dev and test {settings['scored']:,} examples were used at most.")
        lines.append(
            f"- Seeds of stage 2: {settings['seeds']}; the stage 1 is one for all of them."
        )
        given = [f"`{settings[name]}`" for name in ("recipe", "extra") if settings[name]]
        lines += [f"- Settings: {', '.join(given)}."] if given else []
        if settings.get("several"):
            lines.append(f"- Of models of several tasks alone: `{settings['several']}`.")
        minutes = ", ".join(f"{name} {spent:.1f}" for name, spent in self.record["minutes"].items())
        lines += [f"- Minutes: {minutes}."] if minutes else []
        return lines + [f"- No result: {reason}." for reason in self.record["failed"]]


def _only(strategy: Strategy, task: str) -> Strategy:
    """The scores of a strategy on one task."""
    return Strategy(strategy.title, {task: strategy.values[task]})


_ABOUT = """\
- **Medians** are over the seeds of stage 2; the mean's is that of each seed's mean over tasks. **p**: Mann-Whitney U test on the seeds,
  two-sided; of the tasks of a row, and of the rows of Tables 3.4 and 3.5, corrected by Holm-Bonferroni. The mean has a test of its own.
- **Teachers** are the models that a run keeps, the best of its seeds on dev. Dev also chooses the epoch: of each task alone, or of all
  tasks together. “Best epoch of each task” is what a model of all would score if each task had its own; no model has these scores.
- **Dropped**: training examples that dev or test of the same task has too (own), and those that dev or test of another task has (others').
  All strategies read the same files."""
_TABLE_NOTES = {
    "3.3": "- Table 3.3: fine-tuning begins with the one model that a run keeps, and is compared with that; its head is new, "
    "its learning rate a tenth of the one before.",
    "3.4": "- Table 3.4 lacks the row without layer-wise learning rates: `finetune.layer_decay` is 1 here unless set.",
}
_STAGE1 = {
    "shared": "- **Stage 1** is one for all strategies: text that the examples of all tasks select; their labels play no part "
    "(`train.rho1` = 1000000, `train.rho2` = 1e6).",
    "own": "- **Stage 1** is of each task alone, or of all tasks together, with their labels; students begin with "
    "that of the model they are compared with.",
}
