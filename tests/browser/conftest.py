"""A headless Chromium for the pages that tasklm makes: what they show, in which width and light,
and what they ask for.

Screenshots go to pytest's temporary folder; `pytest tests/browser --basetemp shots` keeps them
under shots/.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tasklm.pipeline.flow import fit
from tasklm.recipe.toml import load
from tasklm.tracking import Tracker
from tests.conftest import labelled, sentences, write_jsonl
from tests.end_to_end.conftest import options

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
WIDTHS, SCHEMES = (360, 1280), ("light", "dark")


class Browser:
    """Chromium with what the tests ask of it; `driver` is Selenium's."""

    def __init__(self, driver: Any, screenshots: Path) -> None:
        self.driver, self.screenshots = driver, screenshots

    def open(
        self, url: str, width: int = 1280, scheme: str = "light", scripts: bool = True
    ) -> None:
        """Opens a page as wide as asked, in light or dark, with scripts or without."""
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
        )
        self.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not scripts})
        self.driver.get(url)

    def run(self, script: str, *values: Any) -> Any:
        """What a script returns in the page."""
        return self.driver.execute_script(script, *values)

    def text(self, selector: str = "body") -> str:
        """The text that a person sees in an element, or nothing when there is no such element."""
        return str(
            self.run(
                (
                    "const found = "
                    "document.querySelector(arguments[0]); "
                    "return found ? found.innerText.trim() : ''"
                ),
                selector,
            )
        )

    def find(self, selector: str) -> Any:
        """The elements that a CSS selector finds."""
        return self.driver.find_elements("css selector", selector)

    def wait_for(self, found: Callable[[], Any], what: str, seconds: float = 20) -> Any:
        """The first true value of `found`; fails when it does not come."""
        end = time.monotonic() + seconds
        while not (value := found()):
            assert time.monotonic() < end, (
                f"waited in vain for {what}; the page says:\n{self.text()}"
            )
            time.sleep(0.05)
        return value

    def overflow(self) -> list[str]:
        """The elements that stick out to the right, where the page scrolls sideways; none where it
        does not.
        """
        return list(
            self.run(
                """const wide = document.documentElement.clientWidth;
                if (document.documentElement.scrollWidth <= window.innerWidth) return [];
                return [...document.querySelectorAll('body *')].filter((one) => one.getBoundingClientRect().right > wide + 1)
                  .map((one) => one.tagName + '.' + one.className + ' ' + one.textContent.slice(0, 40))"""
            )
            or []
        )

    def contrast(self, selector: str) -> float:
        """The smallest contrast of text and page among the elements that a selector finds, as WCAG
        computes it.
        """
        return float(self.run(CONTRAST, selector))

    def requests(self) -> list[str]:
        """The addresses that were asked for since the last call."""
        sent = [
            json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")
        ]
        return [
            one["params"]["request"]["url"]
            for one in sent
            if one["method"] == "Network.requestWillBeSent"
        ]

    def errors(self) -> list[str]:
        """Returns errors of the console since the last call: failures of scripts, of loading, of
        the page's policy.
        """
        return [
            entry["message"]
            for entry in self.driver.get_log("browser")
            if entry["level"] == "SEVERE"
        ]

    def screenshot(self, name: str) -> Path:
        """Where a picture of the whole page was saved."""
        path = self.screenshots / f"{name}.png"
        size = self.driver.execute_cdp_cmd("Page.getLayoutMetrics", {})["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        picture = self.driver.execute_cdp_cmd(
            "Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip}
        )
        path.write_bytes(base64.b64decode(picture["data"]))
        return path


CONTRAST = """
const parts = (colour) => { // red, green, blue and opacity, from 0 to 1
  const found = colour.match(/[\\d.]+(e-?\\d+)?/g).map(Number), whole = colour.startsWith('color(') ? 1 : 255;
  return [...found.slice(0, 3).map((part) => part / whole), found.length > 3 ? found[3] : 1];
};
const over = (above, below) => [0, 1, 2].map((place) => above[3] * above[place] + (1 - above[3]) * below[place]);
const light = (colour) => {
  const [red, green, blue] = colour.map((share) => (share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
};
const behind = (one) => (one ? over(parts(getComputedStyle(one).backgroundColor), behind(one.parentElement)) : [1, 1, 1]);
const seen = [...document.querySelectorAll(arguments[0])].filter((one) => one.innerText && one.checkVisibility());
return Math.min(...seen.map((one) => {
  const page = behind(one), text = over(parts(getComputedStyle(one).color), page);
  const [dark, bright] = [light(text), light(page)].sort((a, b) => a - b);
  return (bright + 0.05) / (dark + 0.05);
}));
"""


def _left_out(reason: str) -> None:
    """Skips, and says so in the summary of warnings, which is shown where reasons of skipped tests
    are not.
    """
    warnings.warn(f"browser tests do not run here: {reason}", stacklevel=2)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One Chromium for all tests, with a profile of its own."""
    try:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
    except ImportError:
        _left_out("Selenium is not installed (pip install selenium)")
    program = next((found for name in CHROMIUM if (found := shutil.which(name))), None)
    driver_program = shutil.which("chromedriver")
    if program is None or driver_program is None:
        _left_out(
            "there is no Chromium, or no chromedriver "
            "(Debian: apt-get install chromium chromium-driver)"
        )
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for word in (*QUIET, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(driver_program))
    driver.set_page_load_timeout(30)
    try:
        yield Browser(driver, tmp_path_factory.mktemp("screenshots"))
    finally:
        driver.quit()


@pytest.fixture
def browser(chromium: Browser) -> Iterator[Browser]:
    """A browser with an empty page; afterwards its console must hold no error that the test has not
    read with `errors`.
    """
    chromium.open("about:blank")
    chromium.errors(), chromium.requests()
    yield chromium
    assert chromium.errors() == []


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a whole run of seconds, with a test set and a corpus."""
    folder = tmp_path_factory.mktemp("tiny")
    for name, count, seed in (("train", 120, 1), ("dev", 40, 2), ("test", 60, 3)):
        write_jsonl(folder / f"{name}.jsonl", labelled(count, seed))
    rows: list[dict[str, object]] = [
        {"text": " ".join(sentences(8, 100 + i)), "source": f"s{i % 3}"} for i in range(150)
    ]
    write_jsonl(folder / "corpus.jsonl", rows)
    quick = {"train.steps": "12", "finetune.epochs": "2", "evaluate.bootstrap": "100"}
    fit(load(None, {**options(folder), **quick}), folder / "run", Tracker())
    return folder / "run"


@pytest.fixture(scope="session")
def served() -> Callable[[Path], AbstractContextManager[str]]:
    """`with served(model_folder) as url:` runs `tasklm serve` on a free port of 127.0.0.1 and gives
    its address.
    """

    @contextmanager
    def serve(folder: Path) -> Iterator[str]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-m", "tasklm", "serve", str(folder), "--port", "0"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        assert process.stderr is not None
        said = []
        try:
            for line in process.stderr:
                said.append(line)
                if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                    yield found[0] + "/"
                    break
            else:
                pytest.fail("tasklm serve did not start:\n" + "".join(said))
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=30)

    return serve
