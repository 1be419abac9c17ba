"""What a notebook shows of a model, its report and its explanations."""

from __future__ import annotations

import os
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tasklm import DataError, RecipeError, RunError, TaskLM
from tests.conftest import labelled, write_jsonl
from tests.end_to_end.conftest import QUICK

SHORT = {**QUICK, "train.steps": 6, "finetune.epochs": 1, "finetune.seeds": 1, "evaluate.bootstrap": 100}
EVIL = "<script>alert(1)</script>"


class Tags(HTMLParser):
    """Gathers tags, texts and the attributes of a piece of HTML, and sees that tags are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.text = ""
        self.attributes: dict[str, str | None] = {}
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.open.append(tag)
        self.attributes |= dict(attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, files: Path) -> TaskLM:
    """A small model whose labels and texts would break a careless page."""
    folder = tmp_path_factory.mktemp("showing")
    rows = [{"text": f"{row['text']} <b>&</b>", "label": EVIL if row["label"] == "yes" else "no & no"} for row in labelled(80, 1)]
    write_jsonl(folder / "train.jsonl", rows)
    write_jsonl(folder / "test.jsonl", [{**row, "text": f"{row['text']} {i} x"} for i, row in enumerate(rows[:20])])
    model = TaskLM(corpus=files / "corpus.jsonl", settings={**SHORT, "data.leaks": "keep"}, out=folder / "run")
    return model.fit(folder / "train.jsonl", test=folder / "test.jsonl")


def test_a_model_that_is_not_trained_shows_its_settings() -> None:
    shown = Tags(TaskLM(corpus=EVIL, settings={"select.k": 5})._repr_html_())
    assert EVIL in shown.text and "select.k" in shown.text and "not trained yet" in shown.text and "script" not in shown.tags
    assert "all settings are automatic" in Tags(TaskLM()._repr_html_()).text
    assert TaskLM()._repr_mimebundle_()["text/html"] == TaskLM()._repr_html_()
    secret = Tags(TaskLM(settings={"select.url": "https://me:word@host:9200"})._repr_html_())
    assert "https://host:9200" in secret.text and "word" not in secret.text


def test_a_trained_model_shows_verdict_scores_and_labels_escaped(run: TaskLM) -> None:
    shown = Tags(run._repr_html_())
    assert run.scores_ is not None
    assert run.scores_.verdict in shown.text and EVIL in shown.text and "no & no" in shown.text and "script" not in shown.tags
    for row in run.scores_.rows:
        assert row.name in shown.text
    assert shown.tags.count("tr") == 1 + len(run.scores_.rows)
    loaded = TaskLM.load(run.folder_)
    assert loaded.scores_ == run.scores_ and Tags(loaded._repr_html_()).text == shown.text


def test_the_report_is_a_path_a_page_and_a_copy(run: TaskLM, tmp_path: Path) -> None:
    report = run.report()
    assert str(report) == os.fspath(report) == str(run.folder_ / "report.html")
    shown = Tags(report._repr_html_())
    assert shown.tags == ["iframe"] and shown.attributes["srcdoc"] == Path(report).read_text(encoding="utf-8")
    assert shown.attributes["sandbox"] == "allow-scripts"
    copy = run.report(tmp_path / "new" / "x.html")
    assert Path(copy) == tmp_path / "new" / "x.html" and Path(copy).read_bytes() == Path(report).read_bytes()
    run.save(tmp_path / "saved")
    with pytest.raises(RunError, match="there is no report beside"):
        TaskLM.load(tmp_path / "saved").report()
    assert TaskLM.load(tmp_path / "saved").scores_ is None
    with pytest.raises(RunError, match="not been trained"):
        TaskLM().report()


def test_an_explanation_shows_its_pushes(run: TaskLM) -> None:
    found = run.explain("the cat likes cold water <b>&</b>", top=2)
    shown = Tags(found._repr_html_())
    sides = [found.examples] + ([found.passages] if found.passages else [])
    pushes = [push for side in sides for push in [*side.pushed_for, *side.pushed_against]]
    assert pushes and "script" not in shown.tags and "b" not in shown.tags and "mark" in shown.tags
    for push in pushes:
        assert f"{push.score:+.3f}" in shown.text and push.where.rsplit("/", 1)[-1] in shown.text and f"{push.score:+.3f}" in str(found)
    assert str(found).startswith(f"{found.label} (probability {found.probability:.2f})")


def test_labels_that_do_not_fit_are_told(run: TaskLM) -> None:
    with pytest.raises(DataError, match="2 inputs but 1 labels"):
        run.score(["a", "b"], ["no & no"])
    with pytest.raises(DataError, match="was not in train"):
        run.score(["a"], ["perhaps"])


def test_a_budget_of_no_minutes_is_refused(tmp_path: Path, files: Path) -> None:
    with pytest.raises(RecipeError, match=r"budget\.minutes"):
        TaskLM(minutes=0, out=tmp_path / "run").fit(files / "train.jsonl")
