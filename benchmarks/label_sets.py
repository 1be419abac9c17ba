"""What sets of labels with a promised coverage come to on real data.

    python benchmarks/label_sets.py --tasks TASKS --work W --page docs/benchmarks/coverage.md

For each task the linear model of words is fitted to at most 3,000 training examples, calibrated on
all of dev and asked for sets that are right in 90 % and 95 % of all cases; all of test, at most
10,000 examples, says how often they are. Where a folder has no test, one half of dev is test. The
tagged sets become sets of several labels: which sorts of names a sentence has.

Files may differ as their sources do, and small ones leave much to chance. So dev and test are also
put together and drawn apart again, at random, 50 times: then they are alike by construction, and
the mean says whether the promise holds where it can.

All choices are compared on dev alone: what orders the classes (LAC, APS, RAPS: thresholds from one
half of dev, measured on the other), what thresholds by class cost and give, whether out-of-fold answers on train could calibrate too, and
what tells strange texts apart (words that are new, or unlikely letters). Results of each task are
kept in W, and a task that is there is not repeated.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import betabinom

from tasklm.corpus.words import words
from tasklm.coverage.calibration import Calibration, Seen
from tasklm.coverage.known_words import KnownWords
from tasklm.coverage.measured import Measured, measured
from tasklm.coverage.quantiles import alpha_of, expected_interval, rank, threshold, thresholds
from tasklm.recipe.data_sections import Data, Kind
from tasklm.tasks.answer_sets import POOLED
from tasklm.tasks.base import TASKS, Answer, Task
from tasklm.tasks.baselines.featuriser import evenly
from tasklm.tasks.examples import Example, Splits
from tasklm.tasks.readers.splits import read_splits

PROMISED = (0.90, 0.95)
LABELS, MOST_TEST = 3000, 10_000
STRANGERS = 60  # texts of each other task
FALSE_ALARMS = 0.01
ROUNDS, DRAWS = 20, 50  # halves of dev; dev and test drawn apart again
LETTERS = 1 << 15  # cells of the counts of letters
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


SPLITS = ("train", "dev", "test")


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


def result_of(name: str, kind: str, fitted: Fitted, strangers: Sequence[str]) -> dict[str, Any]:
    """Everything that is measured on a task."""
    sets = fitted.task.sets
    assert sets is not None
    train, dev, test = (fitted.examples[split] for split in SPLITS)
    calibration = Calibration.of(sets, train, dev, fitted.answers["dev"])
    kept = [
        measured(sets, calibration, promised, test, fitted.answers["test"]).to_dict()
        for promised in PROMISED
    ]
    return {
        "task": name,
        "kind": kind,
        "labels": len(fitted.task.labels),
        "train": len(train),
        "dev": len(dev),
        "test": len(test),
        "measured": kept,
        "redrawn": [redrawn(calibration.words, fitted, promised) for promised in PROMISED],
        "folds": [of_folds(fitted, promised) for promised in PROMISED],
        "orders": orders(fitted) if sets.grouped else {},
        "by_class": by_class(fitted) if sets.grouped else [],
        "strange": strange(train, dev, test, strangers),
    }


def of_folds(fitted: Fitted, promised: float) -> dict[str, Any]:
    """The coverage on dev of a threshold from out-of-fold answers on train, and where it belongs."""
    of_train, of_dev = np.sort(fitted.strangeness("train")), fitted.strangeness("dev")
    law = expected_interval(len(of_train), alpha_of(promised), len(of_dev))
    most = threshold(of_train, alpha_of(promised))
    return {"coverage": float((of_dev <= most).mean()), "low": law.low, "high": law.high}


def redrawn(known: KnownWords, fitted: Fitted, promised: float) -> float:
    """The mean coverage where dev and test are put together and drawn apart again."""
    sets = fitted.task.sets
    assert sets is not None
    examples = [*fitted.examples["dev"], *fitted.examples["test"]]
    groups = np.array([sets.group(example.label) for example in examples])
    shares = np.array([known.share_of_new(example.text) for example in examples])
    strangeness = np.concatenate([fitted.strangeness("dev"), fitted.strangeness("test")])
    draw, covered = np.random.default_rng(1), []
    for _ in range(DRAWS):
        places = draw.permutation(len(examples))
        own, others = np.split(places, [len(fitted.examples["dev"])])
        own = own[np.argsort(strangeness[own], kind="stable")]
        seen = {
            str(name): Seen(strangeness[own[groups[own] == name]], shares[own[groups[own] == name]])
            for name in np.unique(groups[own])
        }
        promise = Calibration(seen, known).promise(promised)
        limits = np.array([promise.limit(name) for name in groups[others]])
        hits = (strangeness[others] <= limits) & (shares[others] <= promise.newest)
        covered.append(float(hits.mean()))
    return float(np.mean(covered))


def by_class(fitted: Fitted) -> list[dict[str, list[float]]]:
    """At each promise the mean size of sets and the lowest coverage of a class with 20 or more
    examples, of one threshold for all and of thresholds by class; on halves of dev.
    """
    labels, answers = fitted.task.labels, fitted.answers["dev"]
    odds = np.array([[one["probabilities"][label] for label in labels] for one in answers])
    right = np.array([labels.index(one.label) for one in fitted.examples["dev"]])
    results = []
    for promised in PROMISED:
        draw = np.random.default_rng(0)
        found: dict[str, list[list[float]]] = {"one": [], "by class": []}
        for _ in range(ROUNDS):
            one, other = np.array_split(draw.permutation(len(right)), 2)
            own = 1 - odds[one, right[one]]
            every = {
                name: np.sort(own[right[one] == number])
                for number, name in enumerate(labels)
                if (right[one] == number).any()
            }
            limits = thresholds(every, alpha_of(promised))
            by = {
                "one": np.full(len(labels), limits[POOLED]),
                "by class": np.array([limits.get(name, limits[POOLED]) for name in labels]),
            }
            for name, most in by.items():
                inside = 1 - odds[other] <= most
                hits = inside[np.arange(len(other)), right[other]]
                enough = [
                    place for place in range(len(labels)) if (right[other] == place).sum() >= 20
                ]
                lowest = min((hits[right[other] == place].mean() for place in enough), default=1.0)
                found[name].append([float(inside.sum(1).mean()), float(lowest)])
        results.append({name: np.mean(own, 0).tolist() for name, own in found.items()})
    return results


def orders(fitted: Fitted) -> dict[str, list[float]]:
    """The mean size of sets of each order at each promise, from one half of dev on the other."""
    labels, answers = fitted.task.labels, fitted.answers["dev"]
    odds = np.array([[one["probabilities"][label] for label in labels] for one in answers])
    right = np.array([labels.index(one.label) for one in fitted.examples["dev"]])
    draw = np.random.default_rng(0)
    sizes: dict[str, list[float]] = {}
    for name, order in ORDERS.items():
        strangeness = order(odds, draw)
        sizes[name] = []
        for promised in PROMISED:
            every = []
            for _ in range(ROUNDS):
                one, other = np.array_split(draw.permutation(len(right)), 2)
                most = threshold(np.sort(strangeness[one, right[one]]), alpha_of(promised))
                every.append(float((strangeness[other] <= most).sum(1).mean()))
            sizes[name].append(float(np.mean(every)))
    return sizes


def added_up(odds: Floats, least: Floats, price: float = 0.0) -> Floats:
    """The probabilities of all likelier classes and a share of the own one (APS); RAPS adds a
    price for each class after the first.
    """
    order = np.argsort(-odds, 1, kind="stable")
    there = np.take_along_axis(odds, order, 1)
    sums = np.cumsum(there, 1) - least[:, None] * there + price * np.arange(odds.shape[1])
    strangeness = np.empty_like(sums)
    np.put_along_axis(strangeness, order, sums, 1)
    return strangeness


ORDERS: dict[str, Callable[[Floats, np.random.Generator], Floats]] = {
    "LAC": lambda odds, draw: 1 - odds,
    "APS, at random": lambda odds, draw: added_up(odds, draw.random(len(odds))),
    "APS": lambda odds, draw: added_up(odds, np.zeros(len(odds))),
    "RAPS": lambda odds, draw: added_up(odds, np.zeros(len(odds)), 0.05),
}


def strange(
    train: Sequence[Example],
    dev: Sequence[Example],
    test: Sequence[Example],
    strangers: Sequence[str],
) -> dict[str, list[float]]:
    """How many texts of test and of other tasks are taken for strange where 1 % of dev is."""
    known = KnownWords.of(example.text for example in train)
    letters = unlikely_letters(example.text for example in train)
    shares = {}
    for name, measure in (("new words", known.share_of_new), ("unlikely letters", letters)):
        of_dev = np.sort([measure(example.text) for example in dev])
        most = math.floor(FALSE_ALARMS * (len(dev) + 1))
        if most:
            groups = [[example.text for example in test[:2000]], list(strangers)]
            found = [[measure(text) > of_dev[-most] for text in texts] for texts in groups]
            shares[name] = [float(np.mean(one)) for one in found]
    return shares


def unlikely_letters(texts: Iterable[str]) -> Callable[[str], float]:
    """The mean surprise of the letter triples of a text, after those of some texts."""
    counts = np.zeros(LETTERS)
    for text in texts:
        np.add.at(counts, triples(text), 1)
    surprise = -np.log((counts + 0.5) / (counts + 0.5).sum())
    return lambda text: float(surprise[triples(text)].mean()) if triples(text) else math.inf


def triples(text: str) -> list[int]:
    """The cells of the letter triples of a text."""
    line = f" {' '.join(words(text))} "
    return [zlib.crc32(line[at : at + 3].encode()) % LETTERS for at in range(len(line) - 2)]


def texts_of_others(results: dict[str, Splits], name: str) -> list[str]:
    """Some texts of the other tasks."""
    texts = []
    for other, splits in results.items():
        if other != name:
            texts += [example.text for example in evenly(splits.test, STRANGERS)]
    return texts


def share(value: float) -> str:
    """A share in percent."""
    return f"{100 * value:.1f}"


def chance(one: Measured) -> float:
    """How likely the measured coverage is within a point of the promise if that holds exactly."""
    place = rank(one.dev, alpha_of(one.promised))
    if place > one.dev:
        return 0.0
    low, high = (one.count * (one.promised + away) for away in (-0.01, 0.01))
    law = betabinom(one.count, place, one.dev + 1 - place)
    return float(law.cdf(math.floor(high + 1e-9)) - law.cdf(math.ceil(low - 1e-9) - 1))


def within(one: Measured) -> tuple[bool, bool]:
    """Whether the coverage is within a point of the promise, and where it should lie."""
    low, high = one.expected
    return abs(one.coverage - one.promised) <= 0.01 + 1e-9, low <= one.coverage <= high


def page_of(results: Sequence[dict[str, Any]], command: str) -> str:
    """The page of results."""
    lines = ["# Coverage, measured", "", about(command), ""]
    for place, promised in enumerate(PROMISED):
        rows = [(one, Measured.from_dict(one["measured"][place])) for one in results]
        near = [within(row)[0] for _, row in rows]
        fits = [within(row)[1] for _, row in rows]
        drawn = [abs(one["redrawn"][place] - promised) <= 0.01 + 1e-9 for one, _ in rows]
        likely = sum(chance(row) for _, row in rows)
        lines += [
            f"## Promised {promised:.0%}",
            "",
            f"Within ±1 point: **{sum(near)} of {len(rows)}**; {likely:.1f} are expected where every promise holds exactly. "
            f"Dev and test drawn apart again: **{sum(drawn)} of {len(rows)}**. Where it should lie in 95 of 100 cases: "
            f"**{sum(fits)} of {len(rows)}**. Mean measured coverage: "
            f"{share(float(np.mean([row.coverage for _, row in rows])))} %.",
            "",
            "| task | kind | dev | test | measured, % | should lie in | ±1 | in | drawn again, % | mean size | single, % | unknown, % | worst class, % |",
            "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
        ]
        lines += [row_of(one, row, one["redrawn"][place]) for one, row in rows]
        lines.append("")
    return "\n".join([*lines, *choices(results)])


def about(command: str) -> str:
    return (
        f"`{command}`: the linear model of words, fitted to at most {LABELS:,} examples, calibrated on dev; "
        "how often its sets have the right answer on test. "
        "*Should lie in*: the interval that 95 of 100 such measurements fall in if the promise holds, given the sizes of dev and "
        "test (beta-binomial). *Drawn again*: the mean over 50 random ways to share out dev and test, which are alike then. "
        "An unknown text counts as a miss. *Worst class*: the lowest coverage of a class with 20 or more test examples."
    )


def row_of(result: dict[str, Any], row: Measured, redrawn: float) -> str:
    near, fits = within(row)
    worst = [right / count for right, count in row.by_class.values() if count >= 20]
    single, size = share(row.single / row.count), f"{row.size:.2f}"
    if result["kind"] == "regress":
        single, size = "–", f"{row.size:.2f} wide"
    elif result["labels"]:
        size += f" of {result['labels']}"
    cells = [
        *(result["task"], result["kind"], f"{row.dev:,}", f"{row.count:,}", share(row.coverage)),
        f"{share(row.expected[0])}–{share(row.expected[1])}",
        *("yes" if near else "no", "yes" if fits else "**no**", share(redrawn), size, single),
        share((row.unlike + row.empty) / row.count),
        share(min(worst)) if worst else "–",
    ]
    return f"| {' | '.join(cells)} |"


def choices(results: Sequence[dict[str, Any]]) -> list[str]:
    """What was compared on dev."""
    lines = [
        "## Which order of classes",
        "",
        "Mean size of sets on one half of dev, thresholds from the other; the smallest is best.",
        "",
    ]
    lines += [f"| task | promised | {' | '.join(ORDERS)} |", "|---|---|" + "---|" * len(ORDERS)]
    for one in results:
        for place, promised in enumerate(PROMISED):
            if one["orders"]:
                sizes = " | ".join(f"{one['orders'][name][place]:.2f}" for name in ORDERS)
                lines.append(f"| {one['task']} | {promised:.0%} | {sizes} |")
    lines += [
        "",
        "## Thresholds by class",
        "",
        "On halves of dev: mean size of sets, and the lowest coverage of a class with 20 or more examples there.",
        "",
        "| task | promised | one for all: size | lowest class, % | by class: size | lowest class, % |",
        "|---|---|---|---|---|---|",
    ]
    for one in results:
        for promised, own in zip(PROMISED, one["by_class"], strict=False):
            cells = [f"{size:.2f} | {share(lowest)}" for size, lowest in own.values()]
            lines.append(f"| {one['task']} | {promised:.0%} | {' | '.join(cells)} |")
    lines += [
        "",
        "## Out-of-fold answers on train",
        "",
        "Coverage on dev of thresholds from out-of-fold answers on train, which are more; in brackets where it should lie.",
        "",
    ]
    lines += ["| task | 90 % | 95 % |", "|---|---|---|"]
    outside = 0
    for one in results:
        cells = []
        for own in one["folds"]:
            bad = not own["low"] <= own["coverage"] <= own["high"]
            outside += bad
            cells.append(
                f"{share(own['coverage'])} ({share(own['low'])}–{share(own['high'])}){' **out**' if bad else ''}"
            )
        lines.append(f"| {one['task']} | {' | '.join(cells)} |")
    lines += [
        "",
        f"{outside} of {2 * len(results)} lie outside, where 5 % are expected to: not used.",
    ]
    lines += [
        "",
        "## Strange texts",
        "",
        "Share of texts taken for strange where 1 % of dev is: of the own test, and of 60 texts of each other task.",
        "",
    ]
    lines += [
        "| task | new words: own test | other tasks | unlikely letters: own test | other tasks |",
        "|---|---|---|---|---|",
    ]
    for one in results:
        if one["strange"]:
            cells = [f"{share(value)} %" for own in one["strange"].values() for value in own]
            lines.append(f"| {one['task']} | {' | '.join(cells)} |")
    return [*lines, ""]


def main() -> None:
    """Runs what is missing and writes the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tasks", type=Path, required=True, help="Folder with a folder per task.")
    parser.add_argument("--work", type=Path, required=True, help="Where results are kept.")
    parser.add_argument("--only", default="", help="Names of tasks, comma-separated.")
    parser.add_argument("--page", type=Path, help="The page to write, and a JSON file beside it.")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    names = given.only.split(",") if given.only else list(KINDS)
    every: dict[str, Splits] = {}
    if any(not (given.work / f"{name}.json").exists() for name in names):
        every = {name: splits_of(given.tasks / name, KINDS[name]) for name in names}
    results = []
    for name in names:
        path = given.work / f"{name}.json"
        if not path.exists():
            started = time.monotonic()
            fitted = fit(every[name], KINDS[name])
            result = result_of(name, KINDS[name], fitted, texts_of_others(every, name))
            path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
            print(f"{name}: {time.monotonic() - started:.0f} s", flush=True)
        results.append(json.loads(path.read_text(encoding="utf-8")))
    page = page_of(results, "python benchmarks/label_sets.py --tasks TASKS --work W")
    print(page)
    if given.page is not None:
        given.page.write_text(page, encoding="utf-8")
        given.page.with_suffix(".json").write_text(
            json.dumps(results, indent=1) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
