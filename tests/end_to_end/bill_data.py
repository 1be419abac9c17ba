"""A task and a corpus with everything that a bill of text tells apart, and runs of seconds on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tasklm.bill.record import Bill, read_bill
from tasklm.pipeline.flow import fit
from tasklm.recipe.toml import load
from tasklm.tracking import SILENT
from tests.conftest import labelled, sentences, write_jsonl
from tests.end_to_end.conftest import QUICK

FAST = {**QUICK, "train.steps": "25", "finetune.epochs": "1", "finetune.seeds": "1"}
FAST |= {
    "evaluate.baselines": "false",
    "evaluate.bootstrap": "100",
    "select.near_duplicates": "0.8",
}
LICENCES = ("CC0-1.0", "CC-BY-NC-4.0", None)


def write(folder: Path) -> dict[str, str]:
    """A task and a corpus: two files of one name, rows of several licences, repeats, near copies,
    text of test, and a book.
    """
    for name, count, seed in (("train", 80, 1), ("dev", 30, 2), ("test", 30, 3)):
        write_jsonl(folder / f"{name}.jsonl", labelled(count, seed))
    texts = [" ".join(sentences(8, 100 + i)) for i in range(60)]
    leaked = " ".join(str(row["text"]) for row in labelled(30, 3)[:5])
    (folder / "texts" / "wiki").mkdir(parents=True)
    (folder / "texts" / "news").mkdir()
    news: list[dict[str, object]] = [{"text": text} for text in [*texts[:20], texts[3].upper()]]
    wiki: list[dict[str, object]] = [
        {"text": text, "license": LICENCES[i % 3]}
        for i, text in enumerate([*texts[15:], leaked, f"{texts[30]} at the end"])
    ]
    write_jsonl(folder / "texts" / "news" / "a b.jsonl", news)
    write_jsonl(folder / "texts" / "wiki" / "a b.jsonl", wiki)
    (folder / "texts" / "wiki" / "LICENCE").write_text("MIT License\n\n…", encoding="utf-8")
    book = "\n\n".join(" ".join(sentences(3, 300 + i)) for i in range(40))
    (folder / "texts" / "größe.txt").write_text(book, encoding="utf-8")
    data = {f"data.{name}": str(folder / f"{name}.jsonl") for name in ("train", "dev", "test")}
    return {**FAST, **data, "data.corpus": str(folder / "texts")}


def trained(folder: Path, given: dict[str, str], **changes: Any) -> Bill:
    """The bill of a run."""
    dotted = {key.replace("__", "."): value for key, value in changes.items()}
    fit(load(None, {**given, **dotted}), folder, SILENT, until="evaluate")
    return read_bill(folder)
