"""The watch page follows a run that grows, says how it ended, and is readable: narrow or wide,
light or dark, with scripts or without.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tasklm.artifacts import Artefacts
from tasklm.storage.files import locked
from tasklm.watch.server import WatchServer
from tests.browser.conftest import SCHEMES, WIDTHS, Browser
from tests.watch.growing_run import GrowingRun


@pytest.fixture
def run(tmp_path: Path) -> GrowingRun:
    return GrowingRun(tmp_path / "first")


@pytest.fixture
def url(run: GrowingRun) -> Iterator[str]:
    """The address of the page that follows the run."""
    with WatchServer(run.folder) as server:
        threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()
        yield server.url
        server.shutdown()


def train(run: GrowingRun, until: int) -> None:
    """Writes messages and curves of stage 1 and of two seeds."""
    run.tracker.say("selected 4,000 of 259,377 passages by bm25")
    run.tracker.say(
        "the same with masks: [CLS] a line " + "through_a_very_long_word_without_any_space" * 6
    )
    for step in range(12, until, 12):
        swing = math.sin(step / 40) / 8
        of_text, of_task = 3 + 5 * math.exp(-step / 300) + swing, 3.2 + 5 * math.exp(-step / 280)
        run.point("stage 1", step, **{"lm": of_text, "lm on task": of_task, "task": 0.69})
    for seed in (1, 2):
        for step in range(5, 105, 5):
            dev = {"dev": 0.7 + 0.1 * math.log10(step / 5) + seed / 50} if step % 25 == 0 else {}
            run.point(f"stage 2, seed {seed}", step, task=0.7 * math.exp(-step * seed / 60), **dev)


def steps(browser: Browser) -> dict[str, str]:
    """The state of every step, read at one moment: the page may be about to replace them."""
    found = browser.run(
        "return [...document.querySelectorAll('#flow "
        "li')].map((one) => [one.firstChild.textContent, one.className])"
    )
    return {str(name): str(state) for name, state in found}


def test_it_follows_a_run_from_its_start_to_its_scores(
    browser: Browser, run: GrowingRun, url: str
) -> None:
    with ExitStack() as process:
        process.enter_context(locked(run.folder))
        browser.open(url)
        browser.wait_for(lambda: browser.text("#status") == "running", "a run that runs")
        assert steps(browser)["check"] == "now"

        def stage1(folder: Path) -> None:
            with run.tracker.progress("stage 1", 200) as bar:
                run.point("stage 1", 20, lm=8.5, task=0.7)
                bar.at(86)
                browser.wait_for(lambda: steps(browser)["stage 1"] == "now", "stage 1")
                browser.wait_for(lambda: "43 %, 86 of 200" in browser.text("#work"), "progress")
                (track,) = browser.find("[role=progressbar]")  # it stays as long as the work does
                assert (
                    track.get_attribute("aria-valuenow"),
                    track.get_attribute("aria-label"),
                ) == ("43", "stage 1")
                assert browser.text("#said-aloud") == "stage 1, stage 1 40 percent"
                assert browser.driver.title == "43 % stage 1 · first"
                run.point("stage 1", 40, lm=7.25, task=0.65)
                label = (
                    "stage 1, loss, up to step 40: lm 7.25, at first 8.5; task 0.65, at first 0.7"
                )
                browser.wait_for(
                    lambda: browser.find(f"svg[aria-label='{label}']"), "the curve to grow"
                )
                assert "LOSS: LM\n7.25" in browser.text("#tiles").upper()

        run.build("tokens")
        run.build("stage1", stage1)
        run.tracker.say("a <b>message</b>")
        browser.wait_for(
            lambda: "a <b>message</b>" in browser.text("#said"), "a message, as it was written"
        )
        assert browser.text("#work") == "" and not browser.find("#report a")[0].is_displayed()
        run.finish("The model wins by a lot.")
    browser.wait_for(lambda: browser.text("#status") == "finished", "the end")
    assert "The model wins by a lot." in browser.text(
        "#result"
    ) and "81.4 ± 0.9 [78.3, 82.0]" in browser.text("#result")
    assert set(steps(browser).values()) == {"done"}
    browser.find("#report a")[0].click()
    browser.wait_for(lambda: browser.text("h1") == "the report", "the report")
    assert all(address.startswith((url, "data:")) for address in browser.requests())


def test_a_stopped_run_is_shown_as_such_and_so_is_a_server_that_is_gone(
    browser: Browser, run: GrowingRun
) -> None:
    with WatchServer(run.folder) as server:
        threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()

        def killed(folder: Path) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt), locked(run.folder):
            Artefacts(run.folder).build("stage1", "key", killed)
        browser.open(server.url)
        browser.wait_for(lambda: browser.text("#status") == "stopped", "a stopped run")
        assert steps(browser)["stage 1"] == "stopped" and "Run the same command" in browser.text(
            "#hint"
        )
        server.shutdown()
    browser.run("document.dispatchEvent(new Event('visibilitychange'))")  # asks at once
    browser.wait_for(
        lambda: "server has stopped" in browser.text("#hint"), "a word about the server"
    )
    assert browser.text("#status") == "stopped"  # what it said last is still there
    assert any("ERR_CONNECTION_REFUSED" in error for error in browser.errors())


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_it_fits_its_width_and_can_be_read(
    browser: Browser, run: GrowingRun, url: str, width: int, scheme: str
) -> None:
    train(run, 1500)
    with locked(run.folder):
        run.build("stage1")
        bar = {
            "title": "stage 2, seed 2",
            "done": 62.0,
            "total": 100.0,
            "rate": 0.4,
            "note": "task 0.123",
        }
        run.tracker.event("progress", bars=[bar])
        Artefacts(run.folder / "stage2").build(
            "seed-2", "key", lambda folder: look(browser, url, width, scheme)
        )
    run.finish(
        "BM25 selection (TLM) scores 80.2 (95% interval 78.3 "
        "to 82.0) test accuracy, ahead of the best other row."
    )
    browser.wait_for(lambda: browser.text("#status") == "finished", "the end")
    assert browser.overflow() == []
    browser.screenshot(f"watch-finished-{width}-{scheme}")


def look(browser: Browser, url: str, width: int, scheme: str) -> None:
    browser.open(url, width, scheme)
    browser.wait_for(lambda: len(browser.find("figure")) == 7, "seven charts")
    browser.wait_for(lambda: "62 of 100" in browser.text("#work"), "progress")
    browser.screenshot(f"watch-running-{width}-{scheme}")
    assert browser.overflow() == []
    assert (
        browser.contrast(
            "#live h1, #live h2, #live p, #live li, "
            "#live small, #live dt, #live dd, #live span, #live time"
        )
        >= 4.5
    )
    ends = browser.run(
        "return [...document.querySelectorAll('figure > "
        "svg')].map((one) => one.getBoundingClientRect().right)"
    )
    assert max(ends) <= width


def test_the_legend_tells_the_values_under_the_pointer(
    browser: Browser, run: GrowingRun, url: str
) -> None:
    for step in (10, 20, 30):
        run.point("stage 1", step, lm=step / 10)
    browser.open(url)
    browser.wait_for(lambda: browser.text("figure .legend") == "lm 3", "the last value")
    browser.run(
        """const picture = document.querySelector('figure > svg'), box = picture.getBoundingClientRect();
        picture.dispatchEvent(new PointerEvent('pointermove', {bubbles: true, clientX: box.left + 55, clientY: box.top + 50}))"""
    )
    assert browser.text("figure .legend") == "lm 1" and "step 10" in browser.text("figcaption")
    browser.run("document.querySelector('figure').dispatchEvent(new PointerEvent('pointerleave'))")
    assert browser.text("figure .legend") == "lm 3" and "step 30" in browser.text("figcaption")


def test_a_screen_reader_finds_its_way(browser: Browser, run: GrowingRun, url: str) -> None:
    train(run, 200)
    run.finish()
    with locked(run.folder):
        browser.open(url)
        browser.wait_for(lambda: browser.find("figure"), "charts")
        nodes = browser.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    named = [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in nodes
        if not node["ignored"]
    ]
    for role in ("main", "heading", "list", "listitem", "region", "status", "time"):
        assert role in {found for found, _ in named}, role
    pictures = [name for role, name in named if role in ("image", "img", "graphics-document")]
    assert len(pictures) == 7 and all("up to step" in name for name in pictures)
    assert [one.text for one in browser.find("h1, h2")] == [
        "first",
        "stage 2",
        "stage 1",
        "Messages",
    ]


@pytest.mark.parametrize("width", WIDTHS)
def test_without_scripts_it_says_the_same_in_words(
    browser: Browser, run: GrowingRun, url: str, width: int
) -> None:
    train(run, 200)
    run.finish("The model wins.")
    browser.open(url, width, scripts=False)
    text = browser.text()
    for words in (
        "No process has started",
        "The model wins.",
        "81.4 ± 0.9",
        "stage 1: to come",
        "selected 4,000",
        "every five seconds",
    ):
        assert words in text, words
    assert browser.overflow() == []
    browser.screenshot(f"watch-plain-{width}")
