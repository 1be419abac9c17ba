"""What an update in place costs and gives, on real sets: time, score, and what old classes lose.

    python benchmarks/update.py DATA --work /tmp/updates --sets acl_arc,chemprot

DATA has a folder of train, dev and test for each set. Nine tenths of train become the first run,
the rest is the update (`labels`); and again with one class left out of the first run altogether,
whose rows come with the update (`class`). The same recipe trained from scratch on everything is
what an update is compared with, paired on the same test set. All runs are of the linear model
alone, unless `--network SECONDS` gives a network that long. Times are those of whole commands: of
the clock, and of the processor, which other programs on the machine do not change.

`--results` (JSON) has one result per set and sort; those that it has are not measured again, and
`--page` gets the table of all.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tasklm.evaluate.intervals import Predicted, paired_difference, statistics_of
from tasklm.models.saved_model import read_saved_model
from tasklm.run_folder import recipe_of
from tasklm.storage.files import read_json
from tasklm.tasks.readers.splits import read_splits

LINEAR = ["--train.steps", "0", "--finetune.epochs", "0", "--finetune.seeds", "1"]
COMMON = ["--hardware.threads", "1", "--data.leaks", "drop", "--hardware.device", "cpu"]
NEW = 0.1  # of the labels come with the update
SORTS = ("labels", "class")
BAR, CLOSE = 0.10, 0.5  # share of the first time; points below training on everything
ABOUT = """# Updates in place

Written by `benchmarks/update.py`: nine tenths of the training labels are learnt first, the rest comes
as an [update](../how-to/update.md) (*labels*), or with all rows of one class that the first run has
never seen (*class*; its dev and test rows come with it, too). *On everything* is the same recipe
trained from scratch on all of it; differences on test are paired, with 95 % intervals. Scores are
× 100.

*first, s* is what the first run's clock has for the whole command: reading, choosing the linear
model, baselines, analyses, report; *update, s* is the whole update. The share of processor time is
measured from outside, starting Python included, and depends less on what else the machine does. One thread was
used, beside other work on the machine, but for the two networks of nicta_piboso, which were measured
on an idle one. That of 300 seconds is of earlier code, which fitted its linear part out of fold again.
"""
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Measured:
    """One update: its time and its scores, × 100."""

    name: str
    sort: str
    model: str  # linear or network
    metric: str
    train: int
    new: int
    test: int
    first_seconds: float
    seconds: float
    first_processor: float
    processor: float
    before: float
    after: float
    scratch: float
    difference: tuple[float, float, float]  # after - scratch: value, low, high
    old: tuple[float, float]  # share right of the examples of old classes, before and after
    fresh: tuple[float, float] | None  # of the new class
    changed: int
    published: bool


def read(folder: Path, split: str) -> Rows:
    """The rows of a split."""
    with gzip.open(folder / f"{split}.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def write(path: Path, rows: Rows) -> str:
    """Writes rows; returns the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def left_out_class(rows: Rows) -> str | None:
    """The class of middling size; None where labels are no classes, or there are two."""
    labels = [row.get("label") for row in rows]
    if not all(isinstance(label, str) for label in labels):
        return None
    ordered = Counter(labels).most_common()
    if len(ordered) < 3:
        return None
    return str(ordered[len(ordered) // 2][0])


def files_of(folder: Path, sort: str, work: Path) -> dict[str, str] | None:
    """The files of a first run and of its update; None where the set has no such sort."""
    splits = {split: read(folder, split) for split in ("train", "dev", "test")}
    random.Random(0).shuffle(splits["train"])
    cut = round(len(splits["train"]) * (1 - NEW))
    old, new = splits["train"][:cut], splits["train"][cut:]
    files = {}
    if sort == "class":
        label = left_out_class(splits["train"])
        if label is None:
            return None
        new = [*new, *(row for row in old if row["label"] == label)]
        old = [row for row in old if row["label"] != label]
        for split in ("dev", "test"):
            own = [row for row in splits[split] if row["label"] == label]
            splits[split] = [row for row in splits[split] if row["label"] != label]
            files[f"new-{split}"] = write(work / f"new-{split}.jsonl", own)
    files |= {split: write(work / f"{split}.jsonl", splits[split]) for split in ("dev", "test")}
    return files | {"old": write(work / "old.jsonl", old), "new": write(work / "new.jsonl", new)}


def timed(words: Sequence[str]) -> float:
    """Runs a verb in a process of its own; the seconds that processors worked for it."""
    log = Path(os.environ.get("UPDATE_LOG", os.devnull))
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "tasklm", *words], stdout=out, stderr=subprocess.STDOUT
        )
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"tasklm {' '.join(words)} ended with {process.returncode}")
    return used.ru_utime + used.ru_stime


def name_of(linear: bool, seconds: float | None) -> str:
    """What the first run ended in, and the time that it was given, if it was."""
    name = "linear" if linear else "network"
    return name if seconds is None else f"{name}, {seconds:.0f} s given"


def measure(folder: Path, sort: str, work: Path, seconds: float | None) -> Measured | None:
    """One update of a set, beside training on everything."""
    files = files_of(folder, sort, work)
    if files is None:
        return None
    sizes = LINEAR if seconds is None else ["--minutes", str(seconds / 60)]
    run, scratch = work / "run", work / "scratch"
    given = [files["old"], "--dev", files["dev"], "--test", files["test"]]
    first = timed(["fit", *given, "--out", str(run), *sizes, *COMMON])
    more = ["--train", files["new"]]
    for split in ("dev", "test"):
        more += [f"--{split}", files[f"new-{split}"]] if f"new-{split}" in files else []
    processor = timed(["update", str(run), *more])
    update = run / "updates/1"
    timed(["run", str(update / "recipe.toml"), "--out", str(scratch)])
    result = read_json(update / "update.json")
    groups = {group["name"]: group for group in result["groups"]}
    old, fresh = groups.get("old classes", groups["all"]), groups.get("new classes")
    score, difference = beside_scratch(update, scratch)
    return Measured(
        folder.name,
        sort,
        name_of(result["linear"], seconds),
        result["metric"],
        result["examples"]["train"],
        len(Path(files["new"]).read_text("utf-8").splitlines()),
        result["examples"]["test"],
        result["first_seconds"],
        read_json(update / "clock.json")["seconds"],
        first,
        processor,
        100 * groups["all"]["before"],
        100 * groups["all"]["after"],
        score,
        difference,
        (100 * old["before"], 100 * old["after"]),
        None if fresh is None else (100 * fresh["before"], 100 * fresh["after"]),
        result["changed"],
        result["published"],
    )


def beside_scratch(update: Path, scratch: Path) -> tuple[float, tuple[float, float, float]]:
    """The score of training on everything, and that of the update less this, paired."""
    task = read_saved_model(update / "model").task()
    metric = task.metric(read_json(update / "update.json")["metric"])
    examples = read_splits(recipe_of(update).data).test
    scores = read_json(scratch / "scores.json")
    row = next(row for row in scores["rows"] if row["kind"] == "ours")
    best = max(range(len(row["seeds"])), key=lambda number: row["seeds"][number]["dev"]) + 1
    paths = [update / "answers/after-test.json", scratch / f"predictions/test-{best}.json"]
    gold = [example.label for example in examples]
    ours, other = (
        statistics_of(metric, Predicted(gold, [[task.label_of(one) for one in read_json(path)]]))
        for path in paths
    )
    found = paired_difference(metric, ours, other)
    value = 100 * float(metric.value(other.sum((0, 1, 2))))
    return value, (100 * found.difference, 100 * found.low, 100 * found.high)


def page_of(results: Sequence[Measured]) -> str:
    """The table of all results as Markdown, with what follows from it."""
    header = (
        "| set | new | model | metric | train (new) | first, s | update, s | share | share of "
        "processor time | before | after | on everything | after − on everything | old classes, "
        "right | new class, right |"
    )
    lines = [header, "|---" * 15 + "|"]
    for one in results:
        value, low, high = one.difference
        old = f"{one.old[0]:.1f} → {one.old[1]:.1f}" if one.fresh else "–"
        fresh = f"{one.fresh[0]:.1f} → {one.fresh[1]:.1f}" if one.fresh else "–"
        lines.append(
            f"| {one.name} | {one.sort} | {one.model} | {one.metric} | {one.train:,} ({one.new:,}) "
            f"| {one.first_seconds:.0f} | {one.seconds:.1f} | {one.seconds / one.first_seconds:.0%}"
            f" | {one.processor / one.first_processor:.0%} | {one.before:.1f} | {one.after:.1f} | "
            f"{one.scratch:.1f} | {value:+.1f} [{low:+.1f}, {high:+.1f}] | {old} | {fresh} |"
        )
    quick = sum(one.seconds <= BAR * one.first_seconds for one in results)
    close = sum(one.difference[0] >= -CLOSE for one in results)
    lines += [
        "",
        f"Of {len(results)} updates {quick} took at most {BAR:.0%} of the first run's time, and "
        f"{close} score at most {CLOSE} points below training on everything.",
    ]
    return "\n".join(lines) + "\n"


def read_results(path: Path) -> list[Measured]:
    """The results so far."""
    values = read_json(path) if path.exists() else []
    return [Measured(**one) for one in values]


def main() -> None:
    """Measures what is not measured yet, and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--sets", default="acl_arc")
    parser.add_argument("--sorts", default=",".join(SORTS))
    parser.add_argument("--network", type=float, help="seconds for a network")
    parser.add_argument("--results", type=Path, default=Path("docs/benchmarks/update.json"))
    parser.add_argument("--page", type=Path, default=Path("docs/benchmarks/update.md"))
    given = parser.parse_args()
    results = read_results(given.results)
    models = [name_of(linear, given.network) for linear in (True, False)]
    for name in given.sets.split(","):
        for sort in given.sorts.split(","):
            done = [one for one in results if (one.name, one.sort) == (name, sort)]
            if any(one.model in models for one in done):
                continue
            work = given.work / f"{name}-{sort}-{given.network or 'linear'}"
            measured = measure(given.data / name, sort, work, given.network)
            if measured is not None:
                results.append(measured)
                given.results.write_text(json.dumps([asdict(one) for one in results], indent=1))
                print(page_of([measured]), flush=True)
    given.page.write_text(f"{ABOUT}\n{page_of(results)}", encoding="utf-8")
    print(page_of(results))


if __name__ == "__main__":
    main()
