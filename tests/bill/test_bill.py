"""A bill of text is written and read whole, shown in full, and published without places."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tasklm.bill.lines import LINEAR, common_folder, network_text, rows_of, sentences
from tasklm.bill.record import BILL, Bill, TextFile, TextPart, read_bill, write_bill
from tasklm.errors import DamagedError, RunError
from tasklm.export.publishing import bill_text, published, without_paths
from tasklm.notebook import ShownBill
from tasklm.pipeline.bill_check import named_files
from tasklm.recipe.toml import load
from tasklm.report.report import ReportParts, render
from tasklm.report.text_bill import text_bill
from tests.bill.bills import RECIPE, SHA, bill, taught
from tests.report.checker import checked


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_bill(tmp_path, taught())
    assert read_bill(tmp_path) == taught()
    assert next(iter(json.loads((tmp_path / BILL).read_text(encoding="utf-8")))) == "format"


def test_damage_another_format_and_none_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"has no bill of text \(bill\.json\)\. Give the folder"):
        read_bill(tmp_path)
    with pytest.raises(RunError, match=r"there is no folder .*nowhere\. Give the folder"):
        read_bill(tmp_path / "nowhere")
    write_bill(tmp_path, bill())
    text = (tmp_path / BILL).read_text(encoding="utf-8")
    (tmp_path / BILL).write_text(text.replace("9000", "9001", 1), encoding="utf-8")
    with pytest.raises(DamagedError, match="checksum"):
        read_bill(tmp_path)
    write_bill(tmp_path, replace(bill(), format=99))
    with pytest.raises(RunError, match="has format 99, but this version reads 1"):
        read_bill(tmp_path)


def test_rows_have_the_most_read_first_and_the_rest_in_one() -> None:
    rows = rows_of(bill())
    assert [row.cells() for row in rows] == [
        [
            "texts/wiki.jsonl",
            "CC-BY-SA-4.0",
            "1,000 passages",
            "100",
            "9,000",
            "1.50",
            "90.0%",
        ],
        ["train.csv", "not stated", "55 examples", "train 50, dev 5", "1,000", "2.00", "10.0%"],
        ["texts/b.txt", "MIT", "0 passages", "0", "0", "–", "0.0%"],
    ]
    cut = rows_of(bill(), 1)
    assert [row.source for row in cut] == ["texts/wiki.jsonl", "2 more"]
    assert cut[1].cells()[1:] == ["2 licences", "", "", "1,000", "2.00", "10.0%"]
    assert sum(row.share for row in cut) == pytest.approx(1)


def test_sentences_say_what_rows_do_not() -> None:
    text = "\n".join(sentences(taught()))
    for part in (
        "All sources are in /home/me/data.",
        "Stage 1 read 10,000 tokens: 9,000 of selected text, 1,000 of labelled examples. "
        "2 selected passages were held out of it.",
        "Left out: repeated passages 10, passages with words of dev or test 3, near copies 5, "
        "rows for their licences 2, leaked examples 1.",
        "4 passages occur in several files",
        "The first embeddings come from counts in 6,000 tokens",
        "word vectors of 64 passages",
        "Stage 2 also read 7 pieces",
        "Stage 2 also read 9 texts of /home/me/more.txt",
        "Left out of the corpus on purpose: /home/me/data/texts/bad.txt.",
        "Taught by big, with its own bill.",
        "Training started from older, with its own bill.",
        "The vocabulary is that of older.",
        f"SHA-256 of the trained weights: {SHA}",
    ):
        assert part in text
    linear = replace(bill(), model={**bill().model, "kind": "linear"})
    assert LINEAR in sentences(linear) and LINEAR not in sentences(bill())
    given = {"role": "vocabulary", "path": "/v/tokenizer.json", "sha256": SHA, "texts": 0}
    assert "The vocabulary is that of /v/tokenizer.json." in sentences(
        replace(bill(), others=[given])
    )


def test_of_a_published_checkpoint_nothing_is_claimed() -> None:
    start = {"title": "bert", "folder": "/b", "files": {}, "published": True, "bill": None}
    text = "\n".join(sentences(replace(bill(), start=start)))
    assert "a published checkpoint: what that has read is not known here" in text


def test_a_bill_without_any_text_has_rows_and_sentences() -> None:
    totals = dict.fromkeys(bill().totals, 0)
    none = replace(bill(), corpus=[], labelled=[], others=[], left_out=[], totals=totals)
    assert rows_of(none) == [] and common_folder(none) == ""
    assert "The vocabulary was learnt from the training examples." in sentences(none)


def test_the_network_is_told_with_how_and_limits() -> None:
    text = network_text(bill())
    assert "network calls were seen, to search.example:9200, by an audit hook" in text
    assert "Not seen: calls of native code" in text
    assert "The recipe names search.example:9200." in text
    assert "1 of 1 processes were cut off" in text


def test_what_is_published_has_no_places() -> None:
    shared = published(taught())
    text = json.dumps(shared.to_dict())
    for place in ("/home", "search.example", "secret", "older/", "cache/"):
        assert place not in text, place
    names = [file.path for file in shared.corpus]
    assert names == ["wiki.jsonl", "b.txt", "list.tsv"]
    assert [own.corpus[0].path for _, own in shared.earlier()] == ["wiki.jsonl", "wiki.jsonl"]
    assert shared.left_out[0]["pattern"] == "bad.txt"
    assert shared.network["statement"] == "3 network calls were seen"
    assert shared.corpus[0].sha256 == SHA and shared.totals == bill().totals
    assert published(shared) == shared
    plain = without_paths(RECIPE).data
    assert plain.without == ("bad.txt", "licence:CC-BY-NC*")
    assert plain.licences == ("wiki*=CC-BY-SA-4.0",)


def test_its_recipe_can_be_loaded(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(bill().recipe, encoding="utf-8")
    assert load(tmp_path / "recipe.toml").data.without == RECIPE.data.without


ODD = "<b>|`x`* & ü\n中文.jsonl"


def odd() -> Bill:
    """A bill whose names would be read as markup."""
    part = TextPart(ODD, "", passages=1)
    return replace(bill(), corpus=[TextFile(f"/home/me/data/{ODD}", 1, SHA, parts=[part])])


def test_odd_names_stay_text_in_pages_cards_and_notebooks() -> None:
    checked(render(ReportParts(bill=odd())))
    assert "<b>" not in text_bill(odd())
    card = bill_text(odd())
    assert "<b>" not in card and r"\|\`x\`\*" in card
    assert all(line.count("|") - line.count(r"\|") == 8 for line in card.splitlines()[:4])
    shown = ShownBill(odd())
    assert "<b>" not in shown._repr_html_() and "中文.jsonl" in str(shown)
    assert shown.to_dict() == odd().to_dict()
    assert text_bill(None) == ""


def test_every_file_is_named_with_those_of_teachers_and_starts() -> None:
    roles = [(one.role, Path(one.path).name) for one in named_files(taught())]
    own = [
        ("corpus", "wiki.jsonl"),
        ("corpus", "b.txt"),
        ("examples", "train.csv"),
        ("text without labels", "more.txt"),
    ]
    models = [("big", "model.safetensors"), ("older", "model.safetensors")]
    theirs = [(f"{title}, {role}", name) for title in ("big", "older") for role, name in own]
    assert roles == [*own, *models, *theirs]
