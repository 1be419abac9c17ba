"""report.html of a whole run opens from the disk, alone and readable: narrow or wide, light or
dark, with scripts or without.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tasklm.report.report import ReportParts, write_report
from tests.browser.conftest import SCHEMES, WIDTHS, Browser
from tests.report.parts import insights, scores

CLASSES = ["10", "9", "e2e"]  # of which not all are numbers, so that the letters count


@pytest.fixture
def report(tiny_run: Path) -> Path:
    return tiny_run / "report.html"


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_it_fits_its_width_and_asks_for_nothing(
    browser: Browser, report: Path, width: int, scheme: str
) -> None:
    browser.open(report.as_uri(), width, scheme)
    assert browser.overflow() == []
    assert [address for address in browser.requests() if not address.startswith("data:")] == [
        report.as_uri()
    ]
    assert len(browser.find("h2")) > 3 and all(one.is_displayed() for one in browser.find("h2"))
    assert browser.contrast("h1, h2, p, th, td, summary, figcaption") >= 4.5
    browser.screenshot(f"report-{width}-{scheme}")


@pytest.mark.parametrize("width", [1280, 800, 400])
def test_no_table_of_scores_or_classes_is_cut_off(
    browser: Browser, tmp_path: Path, width: int
) -> None:
    names = ["Background", "CompareOrContrast", "Extends", "Future", "Motivation", "Uses"]
    confusion = [[37, 1, 0, 0, 0, 0], *([[1200, 1, 2, 3, 4, 5]] * 5)]
    parts = ReportParts(
        scores=scores("TF-IDF + linear, words and characters"),
        confusion=(names, confusion),
        split="test",
    )
    write_report(tmp_path / "report.html", parts)
    browser.open((tmp_path / "report.html").as_uri(), width)
    tables = "[...document.querySelectorAll('#scores .scroll, #classes .scroll')]"
    assert browser.run(f"return {tables}.length") == 5
    cut_off = (
        "filter((one) => one.scrollWidth > "
        "one.clientWidth).map((one) => one.getAttribute('aria-label'))"
    )
    assert browser.run(f"return {tables}.{cut_off}") == []
    assert browser.overflow() == []
    stacked = (
        "return getComputedStyle(document.querySelector('#scores .stacked td'), '::before').content"
    )
    assert browser.run(stacked) == (
        '"what"' if width == 400 else "none"
    )  # a card says what its cells are
    browser.screenshot(f"tables-{width}")


def test_the_same_sections_are_there_without_scripts(browser: Browser, report: Path) -> None:
    seen = {}
    for scripts in (True, False):
        browser.open(report.as_uri(), scripts=scripts)
        seen[scripts] = [one.text for one in browser.find("h2") if one.is_displayed()]
    assert seen[True] == seen[False] and len(seen[True]) > 3


def test_its_links_lead_to_its_sections(browser: Browser, report: Path) -> None:
    browser.open(report.as_uri())
    targets = [one.get_attribute("href").partition("#")[2] for one in browser.find("nav a")]
    assert targets and all(len(browser.find(f"[id='{target}']")) == 1 for target in targets)


@pytest.fixture
def made_up(tmp_path: Path) -> Path:
    """A report with classes, mistakes and curves whose numbers are known."""
    pairs = [("10", "9")] * 3 + [("9", "e2e")] * 9 + [("e2e", "10")]
    mistakes = [
        {"text": f"text {at} of {gold}", "gold": gold, "predicted": found, "probability": 0.9}
        for at, (gold, found) in enumerate(pairs)
    ]
    curves = [
        {"step": step, "seed": seed, "dev score": step / seed}
        for step in range(5)
        for seed in (1, 2)
    ]
    parts = ReportParts(
        confusion=(CLASSES, [[5, 3, 0], [0, 1, 9], [1, 0, 2]]),
        mistakes=mistakes,
        curves=curves,
        label_words=insights("x")["label_words"],
    )
    write_report(tmp_path / "report.html", parts)
    return tmp_path / "report.html"


def column(browser: Browser, number: int) -> list[str]:
    script = (
        "return [...document.querySelector('#classes "
        "table.sortable').tBodies[0].rows].map((row) => row.cells[arguments[0]].innerText)"
    )
    return list(browser.run(script, number))


def sorted_by(browser: Browser, number: int) -> list[str]:
    """The classes after a click on a column's name."""
    browser.find("#classes table.sortable thead button")[number].click()
    return column(browser, 0)


def test_a_click_on_a_column_sorts_by_it(browser: Browser, made_up: Path) -> None:
    browser.open(made_up.as_uri())
    assert column(browser, 0) == CLASSES and column(browser, 4) == ["8", "10", "3"]
    assert [sorted_by(browser, 4), sorted_by(browser, 4)] == [
        ["9", "10", "e2e"],
        ["e2e", "10", "9"],
    ]  # as numbers: 10, 8, 3, and back
    assert [sorted_by(browser, 0), sorted_by(browser, 0)] == [
        ["e2e", "9", "10"],
        ["10", "9", "e2e"],
    ]  # as letters
    assert [
        one.get_attribute("aria-sort")
        for one in browser.find("#classes table.sortable th[aria-sort]")
    ] == ["ascending"]


def shown_mistakes(browser: Browser) -> list[str]:
    """The texts of the mistakes that are seen."""
    return [one.text for one in browser.find("#mistakes .card p") if one.is_displayed()]


def test_mistakes_are_filtered_by_words_and_labels(browser: Browser, made_up: Path) -> None:
    keys = pytest.importorskip("selenium.webdriver.common.keys").Keys
    browser.open(made_up.as_uri())
    assert (
        len(shown_mistakes(browser)) == 10
        and browser.text("#mistakes .filter [role=status]") == "13 of 13"
    )  # three are folded
    browser.find("#mistakes input")[0].send_keys("TEXT 12")
    assert (
        shown_mistakes(browser) == ["text 12 of e2e"]
        and browser.text("#mistakes .filter [role=status]") == "1 of 13"
    )
    browser.find("#mistakes input")[0].send_keys(keys.BACKSPACE * len("TEXT 12"))
    browser.find("#mistakes select[aria-label='any right label']")[0].send_keys(
        "10"
    )  # by keys, which tell the page as a person's do
    assert shown_mistakes(browser) == [f"text {number} of 10" for number in range(3)]


def test_a_cell_of_the_matrix_leads_to_its_mistakes(browser: Browser, made_up: Path) -> None:
    browser.open(made_up.as_uri())
    cell = next(one for one in browser.find(".matrix a") if one.text == "9")
    assert (cell.get_attribute("data-gold"), cell.get_attribute("data-predicted")) == ("9", "e2e")
    cell.click()
    assert shown_mistakes(browser) == [f"text {number} of 9" for number in range(3, 12)]
    assert browser.driver.current_url.endswith("#mistakes")


def test_a_name_in_a_legend_shows_its_marks_alone(browser: Browser, made_up: Path) -> None:
    browser.open(made_up.as_uri())
    marks = (
        "return [...document.querySelectorAll('#learning svg "
        "g[class~=line]')].map((one) => one.classList.contains('dim'))"
    )
    assert browser.run(marks) == [False, False]
    entries = browser.find("#learning .legend li")
    entries[1].click()
    assert browser.run(marks) == [True, False] and [
        one.get_attribute("aria-pressed") for one in entries
    ] == ["false", "true"]
    entries[1].click()
    assert browser.run(marks) == [False, False]


def test_printing_opens_what_is_folded(browser: Browser, made_up: Path) -> None:
    browser.open(made_up.as_uri())
    folded = "return document.querySelectorAll('details:not([open])').length"
    before = browser.run(folded)
    assert before > 0
    browser.run("dispatchEvent(new Event('beforeprint'))")
    assert browser.run(folded) == 0
    browser.run("dispatchEvent(new Event('afterprint'))")
    assert browser.run(folded) == before
