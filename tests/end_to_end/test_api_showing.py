"""What a notebook shows of a model, its report and its explanations."""

from __future__ import annotations

import os
import shutil
import warnings
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tasklm import DataError, RecipeError, RunError, TaskLM
from tasklm.pipeline import flow
from tasklm.recipe.toml import load as load_recipe
from tasklm.tracking import SILENT
from tests.conftest import labelled, write_jsonl
from tests.end_to_end.conftest import QUICK

SHORT = {
    **QUICK,
    "train.steps": 6,
    "finetune.epochs": 1,
    "finetune.seeds": 1,
    "evaluate.bootstrap": 100,
}
EVIL = "<script>alert(1)</script>"


class Tags(HTMLParser):
    """Gathers tags, texts and the attributes of a piece of HTML, and sees that tags are closed in
    order.
    """

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
    rows = [
        {"text": f"{row['text']} <b>&</b>", "label": EVIL if row["label"] == "yes" else "no & no"}
        for row in labelled(80, 1)
    ]
    write_jsonl(folder / "train.jsonl", rows)
    write_jsonl(
        folder / "test.jsonl",
        [{**row, "text": f"{row['text']} {i} x"} for i, row in enumerate(rows[:20])],
    )
    model = TaskLM(
        corpus=files / "corpus.jsonl", settings={**SHORT, "data.leaks": "keep"}, out=folder / "run"
    )
    return model.fit(folder / "train.jsonl", test=folder / "test.jsonl")


def test_a_model_that_is_not_trained_shows_its_settings() -> None:
    shown = Tags(TaskLM(corpus=EVIL, settings={"select.k": 5})._repr_html_())
    assert (
        EVIL in shown.text
        and "select.k" in shown.text
        and "not trained yet" in shown.text
        and "script" not in shown.tags
    )
    assert "all settings are automatic" in Tags(TaskLM()._repr_html_()).text
    assert TaskLM()._repr_mimebundle_()["text/html"] == TaskLM()._repr_html_()
    secret = Tags(TaskLM(settings={"select.url": "https://me:word@host:9200"})._repr_html_())
    assert "https://host:9200" in secret.text and "word" not in secret.text
    several = {"select.url": "https://me:wo@rd@host:9200", "data.text_column": "a@b"}
    secret = Tags(TaskLM(settings=several)._repr_html_())
    assert "https://host:9200" in secret.text and "rd@" not in secret.text and "a@b" in secret.text


def test_a_trained_model_shows_verdict_scores_and_labels_escaped(run: TaskLM) -> None:
    shown = Tags(run._repr_html_())
    assert run.scores_ is not None
    assert (
        run.scores_.verdict in shown.text
        and EVIL in shown.text
        and "no & no" in shown.text
        and "script" not in shown.tags
    )
    for row in run.scores_.rows:
        assert row.name in shown.text
    assert shown.tags.count("tr") == 1 + len(run.scores_.rows)
    loaded = TaskLM.load(run.folder_)
    assert loaded.scores_ == run.scores_ and Tags(loaded._repr_html_()).text == shown.text


def test_the_report_is_a_path_a_page_and_a_copy(run: TaskLM, tmp_path: Path) -> None:
    report = run.report()
    assert str(report) == os.fspath(report) == str(run.folder_ / "report.html")
    shown = Tags(report._repr_html_())
    assert shown.tags == ["iframe"] and shown.attributes["srcdoc"] == Path(report).read_text(
        encoding="utf-8"
    )
    assert shown.attributes["sandbox"] == "allow-scripts"
    copy = run.report(tmp_path / "new" / "x.html")
    assert (
        Path(copy) == tmp_path / "new" / "x.html"
        and Path(copy).read_bytes() == Path(report).read_bytes()
    )
    run.save(tmp_path / "saved")
    with pytest.raises(RunError, match="there is no report beside"):
        TaskLM.load(tmp_path / "saved").report()
    assert TaskLM.load(tmp_path / "saved").scores_ is None
    with pytest.raises(RunError, match="not been trained"):
        TaskLM().report()


def test_strangers_beside_a_saved_model_are_not_taken_for_its_run(
    run: TaskLM, tmp_path: Path
) -> None:
    (tmp_path / "recipe.toml").write_text("this is = [no recipe", encoding="utf-8")
    (tmp_path / "report.html").write_text("of something else", encoding="utf-8")
    shutil.copy(run.folder_ / "scores.json", tmp_path)
    for name in ("saved", "model"):
        run.save(tmp_path / name)
        alone = TaskLM.load(tmp_path / name)
        assert alone.scores_ is None and list(alone.predict(["a cat"])) == list(
            run.predict(["a cat"])
        )
        with pytest.raises(RunError, match="there is no report beside"):
            alone.report()
    run.save(run.folder_ / "saved")  # inside a run, and yet not its model
    assert TaskLM.load(run.folder_ / "saved").scores_ is None
    with pytest.raises(RunError, match="is only a model"):
        TaskLM.load(run.folder_ / "saved").explain("a cat")


def test_scores_of_an_earlier_recipe_are_told(run: TaskLM, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    for name in ("recipe.toml", "manifest.json", "scores.json", "report.html"):
        folder.mkdir(exist_ok=True)
        shutil.copy(run.folder_ / name, folder)
    shutil.copytree(run.folder_ / "model", folder / "model")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert TaskLM.load(folder).scores_ == run.scores_
    flow.fit(
        load_recipe(folder / "recipe.toml", {"hardware.threads": 1}), folder, SILENT, until="check"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the same recipe again, on another machine
        TaskLM.load(folder)
    flow.fit(load_recipe(folder / "recipe.toml", {"train.steps": 7}), folder, SILENT, until="check")
    with pytest.warns(UserWarning, match=r"from an earlier recipe.*tasklm report"):
        TaskLM.load(folder)


def test_an_explanation_takes_what_predict_takes(run: TaskLM) -> None:
    text = "the cat likes cold water"
    plain, row = run.explain(text, top=2), run.explain({"text": text}, top=2)
    assert row.text == plain.text == text and row.examples == plain.examples
    pair = run.explain((text, "a dog"), top=2)
    (answer,) = run.answers([(text, "a dog")])
    assert pair.text == answer["text"] and pair.probability == pytest.approx(
        answer["probabilities"][pair.label], abs=1e-5
    )


def test_an_explanation_shows_its_attributions(run: TaskLM) -> None:
    found = run.explain("the cat likes cold water <b>&</b>", top=2)
    shown = Tags(found._repr_html_())
    sides = [found.examples] + ([found.passages] if found.passages else [])
    attributions = [
        attribution for side in sides for attribution in [*side.supporting, *side.opposing]
    ]
    assert (
        attributions
        and "script" not in shown.tags
        and "b" not in shown.tags
        and "mark" in shown.tags
    )
    for attribution in attributions:
        assert (
            f"{attribution.score:+.3f}" in shown.text
            and attribution.where.rsplit("/", 1)[-1] in shown.text
            and f"{attribution.score:+.3f}" in str(found)
        )
    assert str(found).startswith(f"{found.label} (probability {found.probability:.2f})")


def test_labels_that_do_not_fit_are_told(run: TaskLM) -> None:
    with pytest.raises(DataError, match="2 inputs but 1 labels"):
        run.score(["a", "b"], ["no & no"])
    with pytest.raises(DataError, match="does not occur in train"):
        run.score(["a"], ["perhaps"])


def test_a_budget_of_no_minutes_is_refused(tmp_path: Path, files: Path) -> None:
    with pytest.raises(RecipeError, match=r"budget\.minutes"):
        TaskLM(minutes=0, out=tmp_path / "run").fit(files / "train.jsonl")
