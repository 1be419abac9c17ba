"""report.html of a whole run opens from the disk, alone and readable: narrow or wide, light or dark, with scripts or without."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.conftest import SCHEMES, WIDTHS, Browser


@pytest.fixture
def report(tiny_run: Path) -> Path:
    return tiny_run / "report.html"


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_it_fits_its_width_and_asks_for_nothing(browser: Browser, report: Path, width: int, scheme: str) -> None:
    browser.open(report.as_uri(), width, scheme)
    assert browser.overflow() == []
    assert [address for address in browser.requests() if not address.startswith("data:")] == [report.as_uri()]
    assert len(browser.find("h2")) > 3 and all(one.is_displayed() for one in browser.find("h2"))
    assert browser.contrast("h1, h2, p, th, td, summary, figcaption") >= 4.5
    browser.screenshot(f"report-{width}-{scheme}")


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
