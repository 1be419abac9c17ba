"""The page of `tasklm serve`: type a text, press the button, see the label and the probabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.browser.conftest import SCHEMES, WIDTHS, Browser

pytest.importorskip("fastapi", reason="tasklm[serve] is not installed")
pytest.importorskip("uvicorn", reason="tasklm[serve] is not installed")


@pytest.fixture(scope="module")
def url(tiny_run: Path, served: Callable[[Path], AbstractContextManager[str]]) -> Iterator[str]:
    with served(tiny_run / "model") as address:
        yield address


def test_a_text_is_answered_with_a_label_and_bars_in_every_width_and_light(browser: Browser, url: str) -> None:
    for width in WIDTHS:
        for scheme in SCHEMES:
            browser.open(url, width, scheme)
            browser.wait_for(lambda: browser.find("#ask")[0].is_displayed(), "the form")
            assert "kind classify, 2 labels" in browser.text("#about")
            browser.find("#first")[0].send_keys("the cat likes music <b>number</b> 7 .")
            browser.find("#predict")[0].click()
            browser.wait_for(lambda: browser.find("#answer dl.bars"), "an answer")
            label = browser.text("#answer h2")
            shares = [float(one.text.removesuffix(" %")) for one in browser.find("#answer dd.share")]
            assert label in ("yes", "no") and len(shares) == 2 and sum(shares) == pytest.approx(100, abs=0.2)
            assert browser.text("#answer dt.best") == label and shares[0] == max(shares)
            widths = browser.run(
                "return [...document.querySelectorAll('#answer .fill')].map((one) => 100 * one.clientWidth / one.parentElement.clientWidth)"
            )
            assert widths == pytest.approx(shares, abs=1)
            assert browser.overflow() == []
            browser.screenshot(f"service-{width}-{scheme}")
    assert all(address.startswith((url, "data:")) for address in browser.requests())


def test_an_empty_row_is_told_in_words(browser: Browser, url: str) -> None:
    browser.open(url)
    browser.wait_for(lambda: browser.find("#ask")[0].is_displayed(), "the form")
    browser.find("input[value=row]")[0].click()
    browser.find("#row")[0].send_keys("{no row")
    browser.find("#predict")[0].click()
    browser.wait_for(lambda: "not valid JSON" in browser.text("#problem"), "the problem")
    assert not browser.find("#answer")[0].is_displayed()
