"""The page of `tasklm serve`: type a text, press the button, see the label and the probabilities,
and what supports them.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tasklm.tokens.tokenizer import Vocabulary
from tests.browser.conftest import SCHEMES, WIDTHS, Browser
from tests.several_models import several_run

pytest.importorskip("fastapi", reason="tasklm[serve] is not installed")
pytest.importorskip("uvicorn", reason="tasklm[serve] is not installed")


@pytest.fixture(scope="module")
def url(tiny_run: Path, served: Callable[[Path], AbstractContextManager[str]]) -> Iterator[str]:
    with served(tiny_run / "model") as address:
        yield address


def test_a_text_is_answered_with_a_label_and_bars_in_every_width_and_light(
    browser: Browser, url: str
) -> None:
    for width in WIDTHS:
        for scheme in SCHEMES:
            browser.open(url, width, scheme)
            browser.wait_for(lambda: browser.find("#ask")[0].is_displayed(), "the form")
            assert "kind classify, 2 labels" in browser.text("#about")
            browser.find("#first")[0].send_keys("the cat likes music <b>number</b> 7 .")
            browser.find("#predict")[0].click()
            browser.wait_for(lambda: browser.find("#answer dl.bars"), "an answer")
            label = browser.text("#answer h2")
            shares = [
                float(one.text.removesuffix(" %")) for one in browser.find("#answer dd.share")
            ]
            assert (
                label in ("yes", "no")
                and len(shares) == 2
                and sum(shares) == pytest.approx(100, abs=0.2)
            )
            assert browser.text("#answer dt.best") == label and shares[0] == max(shares)
            widths = browser.run(
                "return [...document.querySelectorAll('#answer .fill')].map((one) => 100 * "
                "one.clientWidth / one.parentElement.clientWidth)"
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


HOSTILE = (
    "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script>&amp;"
)
TOKEN = "a-token-that-is-long-enough"


@contextmanager
def inside(run: Path, token: str | None = None, hostile: bool = False) -> Iterator[str]:
    """The service in a thread of this process; gives its address.

    A hostile one has tags in its labels and training texts.
    """
    from tasklm.influence.evidence import Attribution, Attributions, Explanation
    from tasklm.recipe.schema import Hardware
    from tasklm.serve import server as serving
    from tasklm.serve.application import Settings
    from tasklm.serve.connections import Room
    from tasklm.serve.explainer import Explainer
    from tasklm.serve.guard import Lifecycle
    from tasklm.serve.predictor import Predictor
    from tasklm.serve.service import create_app

    class HostilePredictor(Predictor):
        def answers(self, given: Sequence[Any]) -> list[dict[str, Any]]:
            return [
                {"label": HOSTILE, "probabilities": {HOSTILE: 0.75, "<b>no</b>": 0.25}}
                for _ in given
            ]

    class HostileExplainer(Explainer):
        def explain_example(
            self, example: Any, top: int = 5, deadline: float = math.inf
        ) -> Explanation:
            attribution = Attribution(
                0.5, 0.1, HOSTILE, f"a text {HOSTILE}", ["text", "<b>"], f"{HOSTILE}, line 7"
            )
            passage = Attribution(-0.5, -0.1, None, f"a passage {HOSTILE}", [], HOSTILE, HOSTILE)
            return Explanation(
                example.text,
                HOSTILE,
                0.75,
                Attributions([attribution], [], 1, 1),
                Attributions([], [passage], 1, 1),
            )

    hardware = Hardware(device="cpu", precision="fp32", threads=1)
    predictor = (HostilePredictor if hostile else Predictor)(run / "model", hardware)
    lifecycle, listener = Lifecycle(), serving.bind("127.0.0.1", 0)
    listener.listen()
    guard = create_app(
        predictor, HostileExplainer(run) if hostile else None, Settings(token=token), lifecycle
    )
    server = serving.GracefulServer(serving.configuration(guard, Room(), 20), lifecycle)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])), daemon=True)
    thread.start()
    try:
        yield serving.address_of(listener) + "/"
    finally:
        server.should_exit = True
        thread.join(20)


def test_why_shows_training_examples_and_passages(browser: Browser, url: str) -> None:
    browser.open(url)
    browser.wait_for(lambda: browser.find("#why")[0].is_displayed(), "the button")
    browser.find("#first")[0].send_keys("the cat likes music number 7 .")
    browser.find("#why")[0].click()
    browser.wait_for(lambda: browser.find("#reasons")[0].is_displayed(), "the reasons")
    label, said = browser.text("#answer h2"), browser.text("#reasons")
    assert (
        f"Training examples that support {label}" in said
        and f"Selected passages that speak against {label}" in said
    )
    assert "train.jsonl, line " in browser.text("#reasons .attributions") and browser.find(
        "#reasons mark"
    )
    assert browser.overflow() == []


def test_hostile_labels_and_texts_are_shown_as_text(browser: Browser, tiny_run: Path) -> None:
    with inside(tiny_run, hostile=True) as address:
        browser.open(address)
        browser.wait_for(lambda: browser.find("#why")[0].is_displayed(), "the button")
        browser.find("#first")[0].send_keys(HOSTILE)
        browser.find("#why")[0].click()
        browser.wait_for(lambda: browser.find("#reasons")[0].is_displayed(), "the reasons")
        assert browser.text("#answer h2") == HOSTILE and browser.text("#answer dt.best") == HOSTILE
        texts = [one.text for one in browser.find("#reasons .attributions li")]
        assert len(texts) == 2 and all(text.count(HOSTILE) >= 2 for text in texts)
        assert f"a text {HOSTILE}" in texts[0] and f"a passage {HOSTILE}" in texts[1]
        assert (
            not browser.find("main img, main script, main b")
            and browser.run("return document.title") == "tasklm"
        )
        assert all(one.startswith((address, "data:")) for one in browser.requests())


def test_links_that_need_the_token_are_not_shown_where_one_is_needed(
    browser: Browser, tiny_run: Path, url: str
) -> None:
    browser.open(url)
    browser.wait_for(lambda: browser.find("#ask")[0].is_displayed(), "the form")
    assert browser.text("footer") == "openapi.json · metrics · health"
    with inside(tiny_run, token=TOKEN) as address:
        browser.open(address)
        browser.wait_for(
            lambda: browser.find("#token")[0].is_displayed(), "the question for the token"
        )
        browser.find("#token")[0].send_keys(TOKEN)
        browser.find("#token-form button")[0].click()
        browser.wait_for(lambda: browser.find("#ask")[0].is_displayed(), "the form")
        assert browser.text("footer") == "health"
    assert all("401" in problem for problem in browser.errors())


def test_one_of_several_tasks_is_chosen(
    browser: Browser, tmp_path: Path, vocabulary: Vocabulary
) -> None:
    with inside(several_run(tmp_path, vocabulary)) as address:
        for width in WIDTHS:
            browser.open(address, width)
            browser.wait_for(lambda: browser.find("#tasks")[0].is_displayed(), "the choice")
            names = [one.text for one in browser.find("#tasks option")]
            assert names == ["classify", "multilabel", "regress", "tag", "all tasks"]
            assert browser.text("#about") == "kind classify, 2 labels"
            browser.find("#first")[0].send_keys("the cat likes music number 7 .")
            browser.find("#predict")[0].click()
            browser.wait_for(lambda: browser.find("#answer dl.bars"), "an answer")
            browser.find("#tasks option")[3].click()
            browser.wait_for(lambda: "kind tag" in browser.text("#about"), "the other task")
            assert not browser.find("#answer")[0].is_displayed()
            browser.find("#predict")[0].click()
            browser.wait_for(lambda: browser.find("#answer ul.words"), "the tags")
            assert browser.overflow() == []
            browser.screenshot(f"service-of-several-{width}")
            browser.find("#tasks option")[4].click()
            browser.wait_for(lambda: "4 tasks" in browser.text("#about"), "all tasks")
            browser.find("#predict")[0].click()
            browser.wait_for(lambda: browser.find("#answer .of-task"), "their answers")
            assert browser.find("#answer h3")[0].text == "classify"
            assert len(browser.find("#answer .of-task")) == 4
            assert browser.find("#answer ul.words") and browser.find("#answer dl.bars")
            assert browser.overflow() == []
            browser.screenshot(f"service-of-all-{width}")
        asked_for = browser.requests()
        assert any(one.endswith("/predict/tag") for one in asked_for)
        assert any(one.endswith("/predict/all") for one in asked_for)


def test_a_model_of_one_task_has_no_choice(browser: Browser, url: str) -> None:
    browser.open(url)
    browser.wait_for(lambda: browser.find("#ask")[0].is_displayed(), "the form")
    assert not browser.find("#tasks")[0].is_displayed()
