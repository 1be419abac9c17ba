"""Examples of each task, and the answers of the linear model of words to them."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tasklm.recipe.data_sections import Data, Kind
from tasklm.tasks.base import TASKS, Answer, Task
from tasklm.tasks.baselines.featuriser import evenly
from tasklm.tasks.examples import Example, Splits
from tasklm.tasks.readers.splits import read_splits

LABELS, MOST_TEST = 3000, 10_000
STRANGERS = 60  # texts of each other task
SPLITS = ("train", "dev", "test")
CLASSES = (
    *("acl_arc", "agnews", "amazon_helpfulness_lite", "chemprot", "glue_cola"),
    *("hyperpartisan_clean", "imdb", "masakhanews_yor", "nicta_piboso", "scierc_rel"),
    *("glue_sst2", "glue_mnli_part", "glue_mrpc", "glue_qnli_rebuilt", "glue_qqp_part"),
    *("glue_rte", "sick_entail"),
)
KINDS = {
    **dict.fromkeys(CLASSES, "classify"),
    **dict.fromkeys(("glue_stsb", "sick_relate"), "regress"),
    "race_middle": "choice",
    **dict.fromkeys(("conll2003_ner", "bionlp13cg_ner", "wnut17_ner"), "multilabel"),
}
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Fitted:
    """A task, its examples, and the linear model's answers by split; those of train out of fold."""

    task: Task
    examples: dict[str, list[Example]]
    answers: dict[str, list[Answer]]

    def strangeness(self, split: str) -> Floats:
        """That of the right answers of a split."""
        assert self.task.sets is not None
        pairs = zip(self.answers[split], self.examples[split], strict=True)
        return np.array([self.task.sets.strangeness(one, example.label) for one, example in pairs])


def splits_of(folder: Path, kind: str) -> Splits:
    """The examples of a folder; those of dev that stand in train are left out."""
    if kind == "multilabel":
        parts = {split: sorts_of_names(folder / f"{split}.jsonl.gz") for split in SPLITS}
        splits = Splits(*(parts[split] for split in SPLITS))
    else:
        tested = (folder / "test.jsonl.gz").exists() and has_labels(folder / "test.jsonl.gz")
        names = {split: str(folder / f"{split}.jsonl.gz") for split in SPLITS[: 2 + tested]}
        splits = read_splits(Data(kind=kind, leaks="drop", **names))
    draw = np.random.default_rng(0)
    if not splits.test:
        order = draw.permutation(len(splits.dev)).tolist()
        half = len(order) // 2
        places = sorted(order[:half]), sorted(order[half:])
        splits.dev, splits.test = ([splits.dev[place] for place in own] for own in places)
    some = draw.permutation(len(splits.train))[:LABELS]
    splits.train = [splits.train[place] for place in sorted(some.tolist())]
    splits.test = evenly(splits.test, MOST_TEST)
    known = {example.label for example in splits.train} if kind == "classify" else set()
    splits.dev = [one for one in splits.dev if not known or one.label in known]
    return splits


def has_labels(path: Path) -> bool:
    """Whether the rows of a file have labels: some test sets are published without."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        row = json.loads(next(file))
    return any(name in row and row[name] not in (None, -1) for name in ("label", "answer"))


def sorts_of_names(path: Path) -> list[Example]:
    """Sentences with the sorts of names in them."""
    examples = []
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line, row in enumerate(map(json.loads, file), 1):
            sorts = sorted({tag[2:] for tag in row["tags"] if tag != "O"})
            examples.append(Example((" ".join(row["tokens"]),), tuple(sorts), str(path), line))
    return examples


def fit(splits: Splits, kind: str) -> Fitted:
    """The linear model of words, and its answers."""
    task = TASKS.get(kind).from_examples(splits.train, Kind())
    fitted = task.fit_wide(splits.train, splits.dev, task.metrics[0])
    answers = {}
    for split, examples in splits.named().items():
        outputs = fitted.train if split == "train" else fitted.wide.outputs(examples)
        units, values = fitted.wide.units_with(task, examples, outputs)
        answers[split] = task.answers(examples, units, values)
    return Fitted(task, splits.named(), answers)


def texts_of_others(results: dict[str, Splits], name: str) -> list[str]:
    """Some texts of the other tasks."""
    texts = []
    for other, splits in results.items():
        if other != name:
            texts += [example.text for example in evenly(splits.test, STRANGERS)]
    return texts
