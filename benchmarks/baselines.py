"""The cheap baselines of data sets: scores on dev and test, and the CPU seconds that they took.

    python benchmarks/baselines.py tasks/scierc_rel:macro_f1 tasks/glue_rte:accuracy:dev
    taskset -c 0 python benchmarks/baselines.py tasks/glue_stsb:spearman        # on one core

A folder holds train, dev and test as .jsonl or .jsonl.gz; ":dev" leaves out a test without labels.
Training examples that dev or test has too are dropped. Needs no corpus and no GPU.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from preparation import cpu_seconds
from tasklm.errors import DataError, TaskLMError
from tasklm.recipe.data_sections import Data, Kind
from tasklm.tasks.base import TASKS, Label, score
from tasklm.tasks.examples import Example
from tasklm.tasks.readers.splits import read_splits, resolved

HEADINGS = ("task", "train / dev / test", "metric", "baseline", "dev", "test", "CPU seconds")


@dataclass(frozen=True)
class Case:
    """A folder of splits, the metric by which it is judged, and the splits that are read."""

    folder: Path
    metric: str
    splits: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Case:
        """The case that FOLDER:METRIC or FOLDER:METRIC:dev names."""
        named = text.removesuffix(":dev")
        folder, _, metric = named.rpartition(":")
        if not folder:
            raise argparse.ArgumentTypeError(f"{text!r} is not FOLDER:METRIC or FOLDER:METRIC:dev")
        splits = ("train", "dev") if named != text else ("train", "dev", "test")
        return cls(Path(folder), metric, splits)

    def data(self) -> Data:
        """The files of the folder, with the kind of task that they show."""
        return resolved(Data(**{split: self._file(split) for split in self.splits}, leaks="drop"))

    def _file(self, split: str) -> str:
        for name in (f"{split}.jsonl.gz", f"{split}.jsonl"):
            if (self.folder / name).is_file():
                return str(self.folder / name)
        remedy = f"Name a folder that has {' and '.join(self.splits)}."
        raise DataError(f"there is no {split}.jsonl", file=self.folder, remedy=remedy)


def rows(case: Case) -> Iterator[tuple[str, ...]]:
    """A row of the table for each baseline of a case; the time of all stands in the last one."""
    data = case.data()
    splits = read_splits(data)
    task = TASKS.get(data.kind).from_examples(splits.train, Kind())
    metric = task.metric(case.metric)
    held = {name: part for name, part in splits.named().items() if name != "train"}
    started = cpu_seconds()
    fitted = task.fit_wide(splits.train, splits.dev, case.metric)
    predicted = task.baselines(splits.train, held, case.metric, fitted and fitted.wide)
    seconds = cpu_seconds() - started
    sizes = " / ".join(f"{len(part):,}" for part in (splits.train, splits.dev, splits.test))
    for name, labels in predicted.items():
        scores = {
            split: _percent(score(metric, _gold(part), labels[split]))
            for split, part in held.items()
        }
        spent = f"{seconds:.1f}" if name == list(predicted)[-1] else ""
        yield (
            case.folder.name,
            sizes,
            metric.name,
            name,
            scores["dev"],
            scores.get("test", "–"),
            spent,
        )


def _gold(part: list[Example]) -> list[Label]:
    return [example.label for example in part]


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def main() -> None:
    """Prints the table, line by line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", metavar="FOLDER:METRIC", nargs="+", type=Case.of)
    print(_line(HEADINGS), _line(["---"] * len(HEADINGS)), sep="\n")
    for case in parser.parse_args().cases:
        for row in rows(case):
            print(_line(row), flush=True)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    try:
        main()
    except TaskLMError as error:
        sys.exit(str(error))
