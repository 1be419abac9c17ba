"""The table and the page of a comparison."""

from __future__ import annotations

import dataclasses
import io
from html.parser import HTMLParser

from rich.console import Console

from tasklm.comparing.choosing import advice_of, picks_of
from tasklm.comparing.page import render_page
from tasklm.comparing.results import Comparison, Result
from tasklm.comparing.table import WIDTH, comparison_text, memory_text, size_text, tables
from tests.comparing.here import against, comparison, result


def example() -> Comparison:
    together = comparison(
        result(
            "majority",
            0.2,
            size=0,
            latency=None,
            best=against(0.6, 0.002),
            ours=against(0.5, 0.002),
        ),
        result("tfidf", 0.8, ours=against(-0.1, 0.04), milliseconds=0.5, size=310_000),
        result(
            "tasklm",
            0.7,
            best=against(0.1, 0.04),
            milliseconds=12.0,
            reads_text=True,
            note="linear",
        ),
        Result("minilm <b>", "frozen", problem="answers & trees"),
        warnings=["3 texts repeat"],
        folder="compare",
    )
    together = dataclasses.replace(together, picks=picks_of(together))
    return dataclasses.replace(together, advice=advice_of(together))


def test_the_table_has_scores_p_sizes_latency_and_needs() -> None:
    lines = str(example()).splitlines()
    assert lines[0].strip() == "test macro-F1 × 100, [95% interval]"
    table = lines[: lines.index("")]
    (row,) = [line for line in table if line.startswith("tasklm ")]
    cells = [
        "tasklm",
        "70.0",
        "70.0 [68.0, 72.0]",
        "–",
        "1.0",
        "12, 24",
        "83",
        "30 s",
        "500 MB",
        "1.0e12",
        "text",
    ]
    assert row.split() == " ".join(cells).split()
    (row,) = [line for line in table if line.startswith("tfidf ")]
    assert "0.31" in row and "0.50, 1.0" in row and "0.04" in row
    assert "- minilm <b>: not compared, answers & trees" in lines and "- tasklm: linear" in lines
    assert "medians changed by up to 6 % during the measurement" in lines[-1]
    assert max(map(len, table)) <= WIDTH


def test_a_narrow_terminal_has_the_table_in_parts() -> None:
    together = example()
    assert len(tables(together, WIDTH)) == 1 and len(tables(together, 80)) == 3
    console = Console(file=io.StringIO(), width=80)
    for table in tables(together, 80):
        console.print(table)
    assert isinstance(console.file, io.StringIO)
    printed = console.file.getvalue()
    assert "…" not in printed and printed.count("tasklm ") == 3


def test_without_tasklm_p_is_to_the_best() -> None:
    text = comparison_text(comparison(result("a", 0.8), result("b", 0.7, best=against(0.1, 0.01))))
    assert "p to the best" in text and "p to tasklm" not in text


def test_numbers_have_as_many_digits_as_mean_something() -> None:
    assert [size_text(size) for size in (0, 4e3, 3.14e6, 87.4e6)] == ["–", "0.00", "3.1", "87"]
    assert [memory_text(size) for size in (0, 5.04e8, 1.26e9)] == ["–", "504 MB", "1.3 GB"]


class Words(HTMLParser):
    """The text of a page, and the links to its parts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text, self.links = "", set[str]()
        self.feed(page)

    def handle_data(self, data: str) -> None:
        self.text += data + "\n"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links |= {str(value) for name, value in attrs if name in ("href", "src")}


def test_the_page_shows_all_that_the_table_does_and_loads_nothing() -> None:
    page = Words(render_page(example()))
    for words in ("Which to use", "+10.0 [+9.0, +11.0]", "smallest", "0.31 MB", "500 MB", "1.0e12"):
        assert words in page.text, words
    assert "not compared: answers & trees" in page.text and "minilm <b>" in page.text
    assert "3 texts repeat" in page.text and "setting of tfidf; linear" not in page.text
    assert page.links and all(link.startswith("#") for link in page.links)


def test_a_page_of_nothing_but_problems_is_a_page() -> None:
    failed = comparison(Result("a", "a", problem="cannot"), machine=None)
    page = Words(render_page(dataclasses.replace(failed, advice=advice_of(failed))))
    assert "No contestant has a score." in page.text and "not compared: cannot" in page.text
