"""The files that README.md and docs/ speak of, small, and the runs that a command of theirs reads
but does not make.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import zstandard

from tasklm.recipe.parsing import named_value
from tests.checkpoints import write_checkpoint
from tests.conftest import labelled, sentences, write_jsonl
from tests.end_to_end.kind_data import CASES
from tests.images.samples import write_folder as write_pictures

KIND_FOLDERS = {
    "ner": "tag",
    "types": "multilabel",
    "stsb": "regress",
    "race": "choice",
    "squad": "span",
    "ewt": "parse",
}
GLUE = ("RTE", "SST-2", "MNLI")
HUB = "hub"  # where the cache of Hugging Face's hub stands here
SPLITS = (("train", 60, 1), ("dev", 30, 2), ("test", 30, 3))


def write_files(folder: Path) -> None:
    """Writes the files that the pages name: labelled tables, texts, lists of candidates."""
    for name, count, seed in SPLITS:
        _write_table(
            folder / f"{name}.csv",
            ["text", "label"],
            [[row["text"], row["label"]] for row in labelled(count, seed)],
            ",",
        )
    write_jsonl(folder / "train.jsonl", labelled(60, 1))
    for name, seed in (("more", 4), ("more-rows", 5), ("more-test", 6)):
        rows = [[row["text"], row["label"]] for row in labelled(24, seed)]
        _write_table(folder / f"{name}.csv", ["text", "label"], rows, ",")
    _write_table(
        folder / "reviews.tsv",
        ["body", "stars"],
        [[row["text"], row["label"]] for row in labelled(60, 1)],
        "\t",
    )
    pairs = [
        {"question": one["text"], "candidate": sentences(1, i)[0], "same": one["label"]}
        for i, one in enumerate(labelled(60, 1))
    ]
    write_jsonl(folder / "pairs.jsonl", pairs)
    (folder / "pairs").mkdir()
    for name, count, seed in SPLITS:
        texts = sentences(count, 50 + seed)
        rows_to_write = [{"source": text, "target": text.upper()} for text in texts]
        write_jsonl(folder / "pairs" / f"{name}.jsonl", rows_to_write)
    for name in ("texts", "articles"):
        (folder / name).mkdir()
        for number in range(60):  # short ones: reports count the words of a thousand passages
            (folder / name / f"{number}.txt").write_text(
                " ".join(sentences(4, 100 * number)), encoding="utf-8"
            )
    (folder / "dumps").mkdir()
    rows = "".join(
        json.dumps({"body": " ".join(sentences(4, 5000 + i)), "title": "a"}) + "\n"
        for i in range(30)
    )
    (folder / "dumps" / "some.jsonl.zst").write_bytes(zstandard.compress(rows.encode()))
    for name, seed in (("texts.txt", 7), ("new.txt", 8)):
        (folder / name).write_text(
            "".join(f"{line}\n" for line in sentences(3, seed)), encoding="utf-8"
        )
    write_pictures(folder / "photos", 10, 1)
    write_pictures(folder / "new-photos", 1, 2)
    shutil.copyfile(next((folder / "new-photos" / "red").iterdir()), folder / "photo.png")
    draw = random.Random(0)
    for name in ("lists.jsonl", "dev-lists.jsonl"):
        lists = [
            {
                "id": i,
                "candidates": [
                    {"text": text, "score": draw.uniform(-2, 0)} for text in sentences(3, i)
                ],
                "answer": 0,
            }
            for i in range(4)
        ]
        (folder / name).write_text(
            "".join(json.dumps(one) + "\n" for one in lists), encoding="utf-8"
        )


def write_kinds(folder: Path) -> None:
    """Writes a folder with train, dev and test of each kind of task that the pages name, and three
    of GLUE's as GLUE has them.
    """
    cases = {case.kind: case for case in CASES}
    for name, kind in KIND_FOLDERS.items():
        (folder / name).mkdir()
        for split, count, seed in SPLITS:
            cases[kind].write(
                folder / name / f"{split}{cases[kind].suffix}", cases[kind].rows(count // 2, seed)
            )
    classes = {"yes": "entailment", "no": "not_entailment"}
    for name, splits, header in (
        ("RTE", ("train", "dev"), ["index", "sentence1", "sentence2", "label"]),
        (
            "MNLI",
            ("train", "dev_matched"),
            ["index", "genre", "sentence1", "sentence2", "gold_label"],
        ),
    ):
        (folder / name).mkdir()
        for seed, split in enumerate(splits):
            rows = [
                [
                    i,
                    *(["fiction"] if "genre" in header else []),
                    row["text"],
                    sentences(1, 900 + i)[0],
                    classes[str(row["label"])],
                ]
                for i, row in enumerate(labelled(40, 40 + seed))
            ]
            _write_table(folder / name / f"{split}.tsv", header, rows, "\t")
    (folder / "SST-2").mkdir()
    for split, seed in (("train", 50), ("dev", 51)):
        rows = [[one["text"], int(one["label"] == "yes")] for one in labelled(40, seed)]
        _write_table(folder / "SST-2" / f"{split}.tsv", ["sentence", "label"], rows, "\t")


def write_checkpoints(folder: Path) -> None:
    """Writes a tiny checkpoint at the places that the pages name: a folder, and the cache of the
    hub.
    """
    import transformers

    for place in (
        folder / "path" / "to" / "checkpoint",
        folder / HUB / "models--roberta-base" / "snapshots" / "0",
    ):
        place.mkdir(parents=True)
        write_checkpoint(place, "roberta", transformers)


def _write_table(path: Path, header: list[str], rows: list[list[object]], between: str) -> None:
    path.write_text(
        "".join(between.join(map(str, row)) + "\n" for row in [header, *rows]), encoding="utf-8"
    )


def provide(words: list[str], finished: Path, run_cli: Callable[[list[str]], str]) -> None:
    """Makes, in the working folder, what a command reads and an earlier command of its page did not
    make.
    """
    before = ["", *words[:-1]]
    read = [
        Path(named_value(word)[1])
        for word, option in zip(words, before, strict=True)
        if option not in ("--out", "--to")
    ]
    if (
        any(path.parts[:1] in (("path",), ("roberta-base",)) for path in read)
        and not Path(HUB).exists()
    ):
        write_checkpoints(Path.cwd())
    if (
        any(path.parts[:1] and path.parts[0] in (*KIND_FOLDERS, *GLUE, "runs") for path in read)
        and not Path("ner").exists()
    ):
        write_kinds(Path.cwd())
    for run in {Path(*path.parts[:2]) for path in read if path.parts[:1] == ("runs",)}:
        if not run.exists():
            _make_run(run, finished, run_cli)


def _make_run(run: Path, finished: Path, run_cli: Callable[[list[str]], str]) -> None:
    if run.name == "photos":
        run_cli(["fit", "photos/", "--out", str(run)])
    elif run.name == "first":
        shutil.copytree(finished / run, run)
    elif run.name == "second":
        run_cli(
            [
                "fit",
                "train.csv",
                "--dev",
                "dev.csv",
                "--test",
                "test.csv",
                "--out",
                str(run),
                "--evaluate.baselines",
                "false",
            ]
        )
    elif run.name == "many":
        run_cli(["fit", "RTE", "SST-2", "--corpus", "texts/", "--out", str(run)])
    else:
        folder = {name.lower(): name for name in GLUE}.get(run.name, run.name)
        train, dev = (str(next(Path(folder).glob(f"{split}.*"))) for split in ("train", "dev"))
        run_cli(["fit", train, "--dev", dev, "--out", str(run), "--evaluate.baselines", "false"])
