"""The report is whole, escaped and self-contained whatever is in it, and says what it was given."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from tasklm.analyse.report import ReportParts, render, write_report
from tasklm.analyse.selection import highlighted, matched_words
from tasklm.evaluate.scores import Scores, make_row, with_verdict
from tasklm.tasks.classify import Classify

EVIL = "<script>alert('x')</script> \"&\" \x00\ud800 </p>"
VOID = {"meta"}


class Checker(HTMLParser):
    """Fails on an element that is not closed in order; collects what a browser would show or fetch."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.names: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text.append(data)


def checked(page: str) -> Checker:
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    assert "script" not in checker.names
    assert not [name for name, _ in checker.attributes if name.startswith("on")]
    assert all((value or "").startswith("#") for name, value in checker.attributes if name in ("href", "src"))
    assert "url(" not in page and "@import" not in page
    return checker


def scores(text: str) -> Scores:
    random = np.random.default_rng(0)
    gold = random.integers(0, 2, 80)
    ours = np.where(random.random((3, 80)) < 0.9, gold, 1 - gold)
    names, mine = [str(number) for number in gold], [[str(number) for number in row] for row in ours]
    task, part, other = Classify(["0", "1"]), (names, mine), (names, [["0"] * 80])
    rows = [
        make_row(text, "baseline", task, "macro_f1", dev=other, test=other, ours_test=mine),
        make_row("TLM", "ours", task, "macro_f1", dev=part, test=part, flops_6nd=2.79e15, flops_exact=2e15, seconds=95),
    ]
    return with_verdict(Scores("macro_f1", ["a", "b"], rows, {"train_examples": 1200, text: text}, seeds=3))


def full(text: str) -> ReportParts:
    """Returns a report with every part, each holding `text` wherever a person's text can stand."""
    pushed = {"label": text, "text": text, "score": 0.625, "shared": [text], "where": text}
    return ReportParts(
        title=text,
        scores=scores(text),
        findings=[{"level": level, "check": text, "message": text, "examples": [text] * 9} for level in ("note", "error", text)],
        curves=[{"step": s, "stage": text, "seed": 1, "mlm_loss": 9 / (s + 1), "dev_f1": s / 50, text: 1.0} for s in range(50)],
        confusion=([text, "b"], [[3, 1], [0, 4]]),
        mistakes=[{"text": text, "gold": text, "predicted": text, "probability": 0.99, "pushed": [pushed]}] * 30,
        selected=[{"id": text, "text": text, "source": text, "score": 3.25, "rank": 1, "asked_by": [text] * 5, "matched": [text]}] * 12,
        selected_sources={text: 70, "news": 30},
        selected_ranks=[1, 1, 2, 7],
        selected_scores=[1.5, 2.5, 2.5],
        words=[(text, 1.25, 17)],
        contamination=[{"text": text, "split": "test"}],
        recipe_toml=text,
        command=text,
        notes=[text],
    )


def test_hostile_text_stays_text_in_every_part() -> None:
    page = checked(render(full(EVIL)))
    shown = "".join(page.text)
    assert shown.count("<script>alert('x')</script>") > 20
    assert "\x00" not in shown and "\ud800" not in shown


def test_long_passages_keep_the_file_small(tmp_path: Path) -> None:
    path = tmp_path / "run" / "report.html"
    parts = full("all work and no play <b> " * 4_000)  # 100 kB wherever text can stand
    write_report(path, parts)
    checked(path.read_text(encoding="utf-8"))
    assert path.stat().st_size < 5_000_000


def test_every_part_is_shown() -> None:
    page = checked(render(full("harbour")))
    shown = "".join(page.text)
    ids = {value for name, value in page.attributes if name == "id"}
    assert ids == {"scores", "notes", "learning", "classes", "mistakes", "data", "selected", "words", "cost", "reproduce"}
    assert {f"#{name}" for name in ids} == {value for name, value in page.attributes if name == "href"}
    assert scores("harbour").verdict in shown
    for expected in (
        "75.0",
        "1,200",
        "BERT-base",
        "10,000 times",
        "1.25 · 17 times",
        "70 (70%)",
        "1 min 35 s",
        "ability 0.99",
        "score 0.625 · ",
        "words in common: ",
    ):
        assert expected in shown, expected
    assert {"polyline", "rect", "mark"} <= page.names


@pytest.mark.parametrize(
    "parts",
    [
        ReportParts(),
        ReportParts(notes=["started"]),
        ReportParts(curves=[{"step": 1, "loss": float("nan")}]),
        ReportParts(scores=Scores("accuracy", [], [])),
        ReportParts(confusion=([], [])),
    ],
)
def test_a_report_can_be_written_after_any_step(parts: ReportParts) -> None:
    page = checked(render(parts))
    assert "The model has not been scored yet." in "".join(page.text)
    assert ("section" in page.names) == bool(parts.notes)  # nothing to show: no empty section


def test_errors_come_before_notes() -> None:
    shown = "".join(checked(render(full("x"))).text)
    assert shown.index("error · x") < shown.index("note · x")


def test_many_classes_show_their_most_frequent_confusions() -> None:
    matrix = np.eye(60, dtype=int)
    matrix[7, 3] = 5
    page = render(ReportParts(confusion=([f"class {number}" for number in range(60)], matrix.tolist())))
    assert "The most frequent of all confusions between 60 classes." in checked(page).text
    assert re.search(r'class 7</td><td>class 3</td><td class="n">5<', page)


def test_matched_words_are_marked_and_common_ones_are_not() -> None:
    passages = [{"text": f"The {word} <is> here", "asked_by": [f"the {word}", "x"]} for word in ("ship", "Gene", "court", "salt")]
    assert matched_words(passages) == [{"ship"}, {"gene"}, {"court"}, {"salt"}]
    assert highlighted("The Gene <is> here", {"gene"}) == "The <mark>Gene</mark> &lt;is&gt; here"
    assert matched_words([{"text": "a b", "asked_by": ["a"], "matched": ["B"]}]) == [{"b"}]
