"""Examples of data and recipes in README.md and docs/ are read as what the page says they are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tasklm.evaluate.reranking import read_candidates
from tasklm.tasks.base import TASKS
from tasklm.tasks.readers.formats import recognise
from tasklm.tasks.several import KIND as SEVERAL
from tests.docs.blocks import PAGES, ROOT, Block, blocks, is_shell

KINDS = ROOT / "docs" / "kinds.md"
TOML = [block for page in PAGES for block in blocks(page) if block.language == "toml"]
RECIPES = [block for block in TOML if "[[rows]]" not in block.text]  # the others are studies
TAGS_IN_COLUMNS = "EU B-ORG"


def is_data(block: Block) -> bool:
    """Whether a block shows data: JSON, or words with their tags."""
    return not is_shell(block) and (
        block.text.startswith("{") or block.text.startswith(TAGS_IN_COLUMNS)
    )


def rows_of(block: Block) -> list[dict[str, object]]:
    """The objects of a block, each of one line or more."""
    found, rest = [], block.text.strip()
    while rest:
        row, end = json.JSONDecoder().raw_decode(rest)
        found.append(row)
        rest = rest[end:].strip()
    return found


def heading_above(block: Block) -> str:
    """The heading of the second level that a block stands under."""
    lines = block.page.read_text(encoding="utf-8").splitlines()[: block.line]
    return next(
        (line.removeprefix("## ") for line in reversed(lines) if line.startswith("## ")), ""
    )


DATA = [block for page in PAGES for block in blocks(page) if is_data(block)]


@pytest.mark.parametrize(
    "block", [block for block in DATA if block.page == KINDS], ids=lambda block: block.name
)
def test_examples_of_a_kind_are_known_as_that_kind(block: Block, tmp_path: Path) -> None:
    kind = heading_above(block)
    if block.text.startswith(TAGS_IN_COLUMNS):
        path = tmp_path / "train.conll"
        path.write_text(block.text, encoding="utf-8")
    else:
        path = tmp_path / "train.jsonl"
        rows = rows_of(block)
        if kind == "regress":  # whole numbers alone would be classes
            rows.append({**rows[0], "label": 3.8})
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert recognise(path).kind == kind


def test_pairs_of_texts_are_known_as_such(tmp_path: Path) -> None:
    (block,) = [block for block in DATA if block.page.name == "translate.md"]
    path = tmp_path / "train.jsonl"
    path.write_text(block.text, encoding="utf-8")
    assert recognise(path).kind == "translate"


def test_every_kind_has_an_example() -> None:
    single = set(TASKS.names()) - {SEVERAL}  # which is made of others
    assert {heading_above(block) for block in DATA if block.page == KINDS} == single


def test_lists_of_candidates_are_read(tmp_path: Path) -> None:
    (block,) = [block for block in DATA if block.page.name == "scoring.md"]
    path = tmp_path / "lists.jsonl"
    path.write_text(block.text, encoding="utf-8")
    (found,) = read_candidates(path)
    assert len(found.texts) == len(found.scores) == 2 and found.reference in found.texts


def test_no_data_is_left_unread() -> None:
    answers = {"coverage.md"}  # shows what a model answers, which test_blocks.py parses
    assert {block.page.name for block in DATA} - answers == {
        "kinds.md",
        "scoring.md",
        "translate.md",
    }


@pytest.mark.parametrize("block", RECIPES, ids=lambda block: block.name)
def test_recipes_are_accepted_with_their_data(
    block: Block, scratch: Path, run_cli: Callable[[list[str]], str]
) -> None:
    (scratch / "page.toml").write_text(block.text, encoding="utf-8")
    run_cli(["check", "train.csv", "--recipe", "page.toml"])
