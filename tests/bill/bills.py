"""A bill of text with every part, for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tasklm.bill.network import summary
from tasklm.bill.record import Bill, LabelledData, LabelledPart, TextFile, TextPart
from tasklm.recipe.schema import Recipe
from tasklm.recipe.toml import dump

SHA = "ab" * 32
RECIPE = Recipe().changed(
    data={
        "train": "/home/me/data/train.csv",
        "corpus": ["/home/me/data/texts"],
        "without": ["/home/me/data/texts/bad.txt", "licence:CC-BY-NC*"],
        "licences": ["/home/me/data/texts/wiki*=CC-BY-SA-4.0"],
    },
    select={"url": "https://me:secret@search.example:9200"},
    hardware={"cache": "/home/me/cache"},
)


def bill(name: str = "first", **changes: Any) -> Bill:
    """A bill whose sources are in /home/me/data."""
    wiki = TextPart(
        "CC-BY-SA-4.0",
        "--licence /home/me/data/texts/wiki*",
        passages=1000,
        repeats=10,
        elsewhere=4,
        contaminated=3,
        near_copies=5,
        selected=100,
        tokens=6000,
        tokens_read=9000,
        tokens_read_by_run=9000,
        share=0.9,
        tokens_counted=6000,
        vector_passages=64,
        stage2_texts=7,
        stage2_tokens=70,
    )
    empty = TextFile("/home/me/data/texts/list.tsv", 9, "", skipped=True)
    rest = TextFile(
        "/home/me/data/texts/b.txt", 5, SHA, documents=1, left_out=2, parts=[TextPart("MIT", "")]
    )
    examples = LabelledPart("not stated", "", {"train": 50, "dev": 5}, 500, 1000, 1000, 0.1)
    train = "/home/me/data/train.csv"
    whole = Bill(
        run=name,
        tasklm="0.1.0",
        made_with={"python": "3.11"},
        recipe=dump(RECIPE),
        model={
            "kind": "network",
            "training": 1,
            "seeds": [1],
            "files": {"model.safetensors": SHA},
            "sha256": SHA,
        },
        totals={
            "tokens_read": 10_000,
            "tokens_read_of_text": 9000,
            "tokens_read_of_examples": 1000,
            "passages": 1000,
            "selected": 100,
            "held_out": 2,
        },
        selection={"method": "bm25", "engine": "elastic"},
        corpus=[
            TextFile("/home/me/data/texts/wiki.jsonl", 70, SHA, 500, parts=[wiki]),
            rest,
            empty,
        ],
        labelled=[
            LabelledData(
                train, [{"path": train, "bytes": 7, "sha256": SHA}], leaks=1, parts=[examples]
            )
        ],
        others=[
            {"role": "text without labels", "path": "/home/me/more.txt", "sha256": SHA, "texts": 9},
        ],
        left_out=[
            {
                "path": "/home/me/data/texts/bad.txt",
                "bytes": 3,
                "licence": "not stated",
                "pattern": "/home/me/data/texts/bad.txt",
            }
        ],
        teachers=[],
        start=None,
        network=summary(
            [{"calls": {"search.example:9200": 3}, "this_machine": 1, "ended": False}],
            ["search.example:9200"],
            1,
        ),
        artefacts={"stage1": "x"},
    )
    return replace(whole, **changes)


def taught() -> Bill:
    """A bill with a teacher and a start, which have their own."""
    origin = {
        "folder": "/home/me/runs/big/model",
        "files": {"model.safetensors": SHA},
        "sha256": SHA,
    }
    teacher = {"title": "big", **origin, "bill": bill("big").to_dict()}
    start = {"title": "older", **origin, "published": False, "bill": bill("older").to_dict()}
    return bill("small", teachers=[teacher], start=start)
