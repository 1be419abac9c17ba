"""The benchmark of laptops: its cuts, its peers on a toy task, its page, and a run that was
stopped.
"""

from __future__ import annotations

import dataclasses
import functools
import gzip
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import laptop
from laptop_runs import report, running
from laptop_runs.cells import Cell, Outcome, command_of, outcome_of, run_cell
from laptop_runs.data import cut_corpus, prepare_task, read_task, spread
from tasklm.contestants import hashed, static
from tasklm.errors import RunError
from tests.conftest import sentences
from tests.end_to_end.kind_data import CASES

WORDS = {
    "cat": ["purr", "paw", "mew"],
    "dog": ["bark", "bone", "growl"],
    "owl": ["hoot", "wing", "night"],
}
Row = dict[str, Any]


def write(file: Path, rows: Sequence[Row]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))


def read(file: Path) -> list[Row]:
    return [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]


def animals(count: int, seed: int) -> list[Row]:
    """Texts whose words tell their class; each has a number, so that none occurs twice."""
    drawn = random.Random(seed)
    labels = [drawn.choice(list(WORDS)) for _ in range(count)]
    texts = [
        f"{' '.join(drawn.choices(WORDS[label], k=4))} n{seed}x{place}"
        for place, label in enumerate(labels)
    ]
    return [{"text": text, "label": label} for text, label in zip(texts, labels, strict=True)]


def toy(folder: Path, labelled_test: bool = True) -> Path:
    """The folder of a made-up task."""
    for seed, (split, count) in enumerate({"train": 120, "dev": 40, "test": 40}.items()):
        rows = animals(count, seed)
        hidden = split == "test" and not labelled_test
        write(
            folder / f"{split}.jsonl.gz",
            [{"text": row["text"]} for row in rows] if hidden else rows,
        )
    return folder


def cell_of(folder: Path, column: str, **more: Any) -> Cell:
    cell = Cell("agnews", column, "accuracy", str(folder), str(folder / "run"), ("texts",), 5.0)
    return dataclasses.replace(cell, **more)


def test_places_are_evenly_spread() -> None:
    assert spread(10, 5) == [0, 2, 4, 6, 8] and spread(3, 9) == [0, 1, 2] and spread(0, 4) == []


def test_half_of_dev_is_scored_where_test_has_no_labels(tmp_path: Path) -> None:
    source = toy(tmp_path / "source", labelled_test=False)
    folder = prepare_task(source, tmp_path / "task", None, 15)
    dev = read(source / "dev.jsonl.gz")
    assert read(folder / "dev.jsonl.gz") == dev[::2]
    assert read(folder / "test.jsonl.gz") == [dev[1::2][place] for place in spread(20, 15)]


def test_fewer_labels_hold_every_class_and_no_leak(tmp_path: Path) -> None:
    source = toy(tmp_path / "source")
    train, test = read(source / "train.jsonl.gz"), read(source / "test.jsonl.gz")
    leak, rare = {**test[0]}, {"text": "a rare one", "label": "yak"}
    write(source / "train.jsonl.gz", [leak, *train, rare])
    folder = prepare_task(source, tmp_path / "task", 10, 99)
    rows = read(folder / "train.jsonl.gz")
    assert rows[:-1] == [[*train, rare][place] for place in spread(121, 10)] and rows[-1] == rare
    again = prepare_task(folder, tmp_path / "again", 11, 99)  # what was prepared is cut no further
    assert read(again / "train.jsonl.gz") == rows
    small = prepare_task(folder, tmp_path / "small", 3, 99, whole=11)
    assert read(small / "train.jsonl.gz") == rows  # few enough to stay whole


def test_a_corpus_is_cut_evenly(tmp_path: Path) -> None:
    write(tmp_path / "texts" / "some.jsonl.gz", [{"text": f"text {place}"} for place in range(9)])
    file = cut_corpus([str(tmp_path / "texts")], 3, tmp_path / "cut.jsonl.gz")
    assert [row["text"] for row in read(file)] == ["text 0", "text 3", "text 6"]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Peers that try less."""
    monkeypatch.setattr(hashed, "RATES", (0.1,))
    monkeypatch.setattr(hashed, "EPOCHS", 6)
    monkeypatch.setattr(static, "WIDTH", 16)


@pytest.mark.usefixtures("quick")
def test_hashed_words_and_static_vectors_learn_a_toy_task(tmp_path: Path) -> None:
    folder = toy(tmp_path)
    texts = [row["text"] for row in read(folder / "train.jsonl.gz")]
    write(folder / "texts" / "some.jsonl.gz", [{"text": text} for text in texts])
    more = {"corpus": (str(folder / "texts"),), "cores": 1}
    for column in ("hashed", "static"):
        outcome = run_cell(cell_of(folder, column, **more))
        assert outcome.test > 0.9 and outcome.dev > 0.9 and outcome.examples == 120
        assert outcome.about and outcome.seconds > 0 and not outcome.failed


@pytest.mark.usefixtures("quick")
def test_hashed_words_learn_what_two_texts_share(tmp_path: Path) -> None:
    words = sorted({word for sentence in sentences(30) for word in sentence.split()})
    drawn = random.Random(1)
    for split, count in {"train": 300, "dev": 60, "test": 60}.items():
        rows: list[Row] = []
        for _ in range(count):
            one, two = drawn.sample(words, 6), drawn.sample(words, 6)
            shared = drawn.randrange(7)
            rows.append(
                {
                    "text_a": " ".join(one),
                    "text_b": " ".join(one[:shared] + two[shared:]),
                    "label": shared / 2,
                }
            )
        write(tmp_path / f"{split}.jsonl.gz", rows)
    more = {"metric": "spearman", "corpus": (), "cores": 1}
    assert run_cell(cell_of(tmp_path, "hashed", **more)).test > 0.3
    assert read_task(tmp_path)[0].kind == "regress"


def test_peers_leave_trees_out(tmp_path: Path) -> None:
    case = next(case for case in CASES if case.kind == "parse")
    for seed, split in enumerate(("train", "dev", "test")):
        write(tmp_path / f"{split}.jsonl.gz", case.rows(9, seed))
    outcome = running.in_a_process(
        cell_of(tmp_path, "hashed"), running.sets_of_cores(1, 2)[0], tmp_path
    )
    assert outcome == run_cell(cell_of(tmp_path, "hashed")) and outcome.failed == "-"


def test_a_run_tells_scores_baselines_and_time_of_training(tmp_path: Path) -> None:
    def row(name: str, kind: str, dev: float, test: float) -> Row:
        return {
            "name": name,
            "kind": kind,
            "dev": {"mean": dev},
            "test": {"mean": test},
            "parameters": 9,
            "selected_passages": 7,
        }

    rows = [
        row("majority", "baseline", 0.1, 0.2),
        row("linear", "baseline", 0.5, 0.6),
        row("ours", "ours", 0.7, 0.65),
    ]
    scores = {"metric": "accuracy", "rows": rows, "data": {"train": 120}}
    (tmp_path / "scores.json").write_text(json.dumps(scores), encoding="utf-8")
    for part, seconds in {"stage1": 5.0, "stage2/seed-1": 2.0, "stage2/seed-2": 3.0}.items():
        (tmp_path / part).mkdir(parents=True)
        (tmp_path / part / "summary.json").write_text(
            json.dumps({"seconds": seconds}), encoding="utf-8"
        )
    outcome = outcome_of(cell_of(tmp_path, "tasklm 5"), tmp_path, 40.0)
    assert (outcome.dev, outcome.test, outcome.training, outcome.examples) == (0.7, 0.65, 10.0, 120)
    assert report.line(outcome, [outcome]).startswith(
        "agnews, tasklm 5 min: dev 70.0, test 65.0, "
        "+5.0 to the linear baseline, 40 s, 25% of it training"
    )


def test_the_command_is_that_of_a_person_with_two_cores(tmp_path: Path) -> None:
    words = command_of(cell_of(tmp_path, "tasklm 5", minutes=5.0, extra="--finetune.seeds 1"))
    text = " ".join(words)
    assert (
        "--minutes 5 " in text
        and "--hardware.threads 2" in text
        and "--hardware.device cpu" in text
    )
    assert words[-2:] == ["--finetune.seeds", "1"] and "--data.leaks drop" in text


def outcome_for(task: str, column: str, test: float, seconds: float = 10.0) -> Outcome:
    baselines = {"majority": {"dev": 0.2, "test": 0.1}, "linear": {"dev": 0.5, "test": 0.5}}
    ours = column.startswith("tasklm")
    return Outcome(
        task, column, test, test, seconds, 4.0 * ours, "", 99, "accuracy", baselines if ours else {}
    )


def test_the_page_has_differences_their_mean_and_the_worst() -> None:
    outcomes = [
        *(
            outcome_for("agnews", column, test)
            for column, test in {"hashed": 0.4, "tasklm 1": 0.52, "tasklm 5": 0.6}.items()
        ),
        *(
            outcome_for("imdb", column, test)
            for column, test in {"tasklm 1": 0.46, "tasklm 5": 0.52}.items()
        ),
        Outcome("imdb", "hashed", failed="-"),
        Outcome("imdb", "static", failed="ended with status 9"),
    ]
    page = report.markdown(outcomes, [5.0, 1.0], {"labels": 99, "extra": ""})
    assert (
        "| agnews | 99 | accuracy | 10.0 | 50.0 | 40.0 | – | 52.0 (+2.0) | 60.0 (+10.0) |" in page
    )
    assert "| imdb | 99 | accuracy | 10.0 | 50.0 | – | – | 46.0 (-4.0) | 52.0 (+2.0) |" in page
    assert "| tasklm 1 min | 2 | -1.0 | -4.0 (imdb) | 1 | 10 | 40% |" in page
    assert "| tasklm 5 min | 2 | +6.0 | +2.0 (imdb) | 0 | 10 | 40% |" in page
    assert "- imdb, static vectors: no result (ended with status 9)." in page
    assert "`--labels`: 99" in page and "`--extra`" not in page


def test_a_run_that_was_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for task in ("agnews", "imdb"):
        toy(tmp_path / "data" / task)
    write(tmp_path / "texts.jsonl.gz", [{"text": "some text"}])
    begun: list[tuple[str, str]] = []

    def run(cell: Cell, cores: Sequence[int], work: Path) -> Outcome:
        begun.append((cell.task, cell.column))
        if len(begun) == 3:
            raise KeyboardInterrupt
        if len(begun) == 5:
            return Outcome(cell.task, cell.column, failed="no memory")
        return outcome_for(cell.task, cell.column, 0.6)

    def main(*more: str) -> list[Row]:
        words = ["--data", str(tmp_path / "data"), "--corpus", str(tmp_path / "texts.jsonl.gz")]
        words += ["--work", str(tmp_path / "work"), "--tasks", "agnews,imdb", "--minutes", "1,5"]
        monkeypatch.setattr(sys, "argv", ["laptop.py", *words, *more])
        laptop.main()
        rows: list[Row] = json.loads(
            (tmp_path / "work" / "laptop.json").read_text(encoding="utf-8")
        )["cells"]
        return rows

    monkeypatch.setattr(laptop, "run_tasks", functools.partial(running.run_tasks, run=run))
    with pytest.raises(KeyboardInterrupt):
        main()
    assert len(main("--seconds", "0")) == 2 and len(begun) == 3
    columns = ["tasklm 1", "tasklm 5", "hashed", "static"]
    rows = main()
    assert begun[3:] == [
        *(("agnews", column) for column in columns[2:]),
        *(("imdb", column) for column in columns),
    ]
    assert [row["column"] for row in rows if row["failed"]] == ["static"] and len(rows) == 8
    main()
    assert begun[9:] == [("agnews", "static")]  # what failed, and nothing else
    with pytest.raises(RunError, match="other settings"):
        main("--labels", "9")
