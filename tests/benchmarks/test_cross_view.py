"""The benchmark of text without labels: its numbers by hand, its plan, its page, and small runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy.stats import ttest_1samp

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import cross_view
from charts import Mark, chart, curves
from cross_view_runs import plan, running, worker
from cross_view_runs.data import TaskFiles, tasks_of
from cross_view_runs.page import Page
from cross_view_runs.tables import gains, interval, paired_p, written
from tasklm.recipe.toml import load
from tests.conftest import sentences, write_jsonl
from tests.end_to_end.conftest import QUICK
from tests.end_to_end.test_several import tagged

TINY = {**QUICK, "train.steps": "2", "finetune.epochs": "1", "evaluate.bootstrap": "100"}
TINY |= {"finetune.batch": "16", "finetune.wide": "false"}


def test_intervals_and_tests_are_student_s() -> None:
    values = [61.0, 64.0, 67.5, 60.0]
    mean, half = interval(values)
    expected = ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert (mean - half, mean + half) == pytest.approx((expected.low, expected.high))
    assert interval([3.0])[0] == 3.0 and np.isnan(interval([3.0])[1])
    differences = [0.4, -0.1, 0.9, 0.5]
    by_hand = ttest_1samp(differences, 0.0).pvalue
    assert paired_p(differences) == pytest.approx(by_hand)
    assert paired_p([1.0, 2.0]) is None and paired_p([1.0, 1.0, 1.0]) is None
    assert written(gains([61.0, 64.0, 67.0], [60.0, 62.0, 64.0]), True) == "+2.0 ± 2.5"
    assert gains([1.0], [1.0, 2.0]) is None and written(None) == ""


def task(name: str, kind: str = "tag") -> TaskFiles:
    return TaskFiles(name, Path("/d") / name, {"data.train": f"/d/{name}"}, "Chunk", kind, 1000)


def wanted(tables: list[str], **more: Any) -> plan.Wanted:
    tasks = [task("a"), task("b"), task("c"), task("t", "parse")]
    return plan.Wanted(tables, tasks, [5.0, 100.0], ["none", "vat"], **more)


def names(runs: list[plan.Planned]) -> list[str]:
    return [run.name for run in runs]


def test_every_table_has_its_runs() -> None:
    assert names(plan.planned(wanted(["shares"])))[:4] == [
        "a-5-none",
        "a-5-vat",
        "a-100-none",
        "a-100-vat",
    ]
    texts = plan.planned(wanted(["text"], texts=["bm25", "random", "hidden", "/x/f.txt"]))
    assert names(texts)[:6] == [
        "a-5-none",
        "a-5-text-bm25",
        "a-5-random-none",
        "a-5-random-text-random",
        "a-5-text-hidden",
        "a-5-text-f.txt",
    ]
    assert "a-100-text-hidden" not in names(texts)
    assert texts[5].values["data.unlabelled"] == "/x/f.txt"
    widths = plan.planned(wanted(["widths"], widths=[64]))
    assert names(widths)[:2] == ["a-100-width64-none", "a-100-width64-cross-view"]
    views = plan.planned(wanted(["4.4"]))
    assert {"c-100-no-sides", "c-100-no-neighbours"} <= set(names(views))
    assert "t-100-no-sides" not in names(views)  # trees have other views
    together = plan.planned(wanted(["4.3"]))
    assert names(together) == ["a+b+c-100-cross-view", "a+b+c-100-one-task"]
    frozen = plan.planned(wanted(["4.5"]))
    last = [run for run in frozen if run.needs]
    assert frozen[-len(last) :] == last and len(last) == 4
    assert last[0].needs == "b+c-100-cross-view" and last[3].needs == "a+b+c-100-cross-view"
    assert {"a-100-on-bilm-frozen", "a-100-none"} <= set(names(frozen))


def test_recipes_have_share_steps_and_what_a_run_begins_with(tmp_path: Path) -> None:
    extra = {"finetune.batch": "64", "model.width": "64", "kind.scheme": "bioes"}
    settings = plan.Settings(tmp_path, "texts", None, 3, extra, 500, 70, 2)
    tasks = {name: task(name) for name in "abc"}
    one = plan.Planned(("a",), 5.0, "vat", values=plan.student("vat"))
    recipe = plan.recipe_of(one, settings, tasks)
    # 50 examples are one step an epoch; dev is scored 20 times
    assert (recipe.finetune.epochs, recipe.finetune.score_every) == (500, 25)
    assert (recipe.data.share, recipe.finetune.unlabelled) == (0.05, "vat")
    assert recipe.hardware.threads == 2 and recipe.select.method == "bm25"
    whole = plan.recipe_of(plan.Planned(("a",), 100.0, "none"), settings, tasks)
    assert (whole.finetune.epochs, whole.finetune.score_every) == (32, 1)  # of 16 steps each
    joint = plan.recipe_of(plan.Planned(("a", "b"), 100.0, "none"), settings, tasks)
    assert [Path(entry.split("=")[1]).name for entry in joint.several.tasks] == ["a.toml", "b.toml"]
    assert load(tmp_path / "tasks" / "a.toml").kind.scheme == "bioes"
    head = plan.Planned(("a",), 100.0, "frozen", start="b+c-100", values={"finetune.freeze": True})
    begun = plan.recipe_of(head, settings, tasks)
    assert begun.train.start == str(tmp_path / "b+c-100" / "model") and begun.train.steps == 0
    assert begun.model.width is None and begun.finetune.batch == 64 and not begun.data.corpus
    text = plan.Planned(("a",), 100.0, "frozen", start="bilm", values={"train.objective": "bilm"})
    assert plan.recipe_of(text, settings, tasks).train.steps == 70


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    seed = 1
    for name in ("words", "more", "third"):
        (tmp_path / "data" / name).mkdir(parents=True)
        for split, count in (("train", 40), ("dev", 10)):
            write_jsonl(tmp_path / "data" / name / f"{split}.jsonl", tagged(count, seed))
            seed += 1
    texts = [[text.capitalize() for text in sentences(6, 100 + i)] for i in range(20)]
    write_jsonl(tmp_path / "corpus.jsonl", [{"text": " ".join(own)} for own in texts])
    return tmp_path


def main(folder: Path, monkeypatch: pytest.MonkeyPatch, *more: str) -> dict[str, Any]:
    extra = " ".join(f"--{key} {value}" for key, value in TINY.items() if key != "finetune.seeds")
    words = ["--work", str(folder / "work"), "--data", str(folder / "data"), "--seeds", "2"]
    words += ["--corpus", str(folder / "corpus.jsonl"), f"--extra={extra}", *more]
    monkeypatch.setattr(sys, "argv", ["cross_view.py", *words])
    cross_view.main()
    values: dict[str, Any] = json.loads((folder / "work" / "cross-view.json").read_text())
    return values


def in_this_process(monkeypatch: pytest.MonkeyPatch, broken: str = "") -> list[str]:
    """Trains runs here; the first attempt of one fails. What is begun."""
    begun: list[str] = []

    def train(self: running.Worker, recipe: Path, folder: Path, log: Path) -> str:
        begun.append(recipe.stem)
        if recipe.stem == broken and begun.count(broken) == 1:
            return "no memory"
        return worker.run(recipe, folder, log)[0]

    monkeypatch.setattr(running.Worker, "train", train)
    return begun


def test_a_small_run_and_one_that_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun = in_this_process(monkeypatch, broken="words-50-cross-view")
    usual = ("--tasks", "words", "--students", "none,cross-view", "--shares", "50,100")
    first = main(folder, monkeypatch, *usual)
    assert begun[:2] == ["words-50-none", "words-50-cross-view"]
    assert first["failed"] == ["words-50-cross-view: no memory"]
    stage1 = folder / "work" / "words-50" / "stage1" / "artefact.json"
    before = stage1.read_bytes()
    again = main(folder, monkeypatch, *usual)
    assert begun[4:] == ["words-50-cross-view"] and not again["failed"]
    assert stage1.read_bytes() == before  # every student begins with the same
    runs = {(run["share"], run["way"]): run for run in again["runs"]}
    assert runs[50.0, "none"]["examples"] in (20, 21) and len(runs) == 4
    assert all(len(run["scores"]["words"]["dev"]) == 2 for run in again["runs"])
    assert all(len(run["curves"]) == 2 and len(run["curves"][0]) == 1 for run in again["runs"])
    page = capsys.readouterr().out
    assert "## words by the share of labels: dev, accuracy" in page
    assert "| labels | cross-view |" in page and "## words: dev against train" in page
    for name in ("shares", "learning"):
        ElementTree.parse(folder / "work" / f"cross-view-words-{name}.svg")
    later = main(folder, monkeypatch, "--tasks", "words,more", "--seconds", "-1")
    assert len(later["runs"]) == 4  # the page has what is there
    assert "more-1-none: not begun: the time was up" in later["failed"]
    with pytest.raises(SystemExit, match="other settings"):
        main(folder, monkeypatch, "--tasks", "words", "--seeds", "3")
    with pytest.raises(SystemExit, match="is no folder"):
        main(folder, monkeypatch, "--tasks", "nothing")
    for wrong in (("--shares", "0"), ("--text", "no-such-file"), ("--tables", "9.9")):
        with pytest.raises(SystemExit):
            main(folder, monkeypatch, "--tasks", "words", *wrong)


def test_tables_of_several_tasks_texts_and_features(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    in_this_process(monkeypatch)
    file = folder / "own.txt"
    file.write_text("\n".join(sentences(12, 300)), encoding="utf-8")
    usual = ("--tasks", "words,more,third", "--shares", "100", "--bilm-steps", "2")
    text = main(folder, monkeypatch, *usual, "--tables", "text", "--text", f"bm25,random,{file}")
    assert not text["failed"]
    page = capsys.readouterr().out
    assert "| words | 100 % | dev | own.txt |" in page and "BM25 − random, dev:" in page
    rest = main(folder, monkeypatch, *usual, "--tables", "4.3,4.4,4.5,widths", "--widths", "16")
    reasons = " ".join(rest["failed"])
    assert all("on-bilm" in one for one in rest["failed"]), reasons  # bert has no bilm
    page = capsys.readouterr().out
    assert "## Table 4.3" in page and "| one task |" in page
    assert "| … without future, past |" in page and "| frozen, of the other tasks |" in page
    assert "## words by the width of the encoder" in page


def test_published_numbers_stand_beside_ours() -> None:
    about = {"width": None, "selection": "bm25", "start": "", "examples": 9, "curves": []}
    runs = [
        {**about, "tasks": ["chunks"], "share": 100.0, "way": way, "minutes": 1.0}
        | {"scores": {"chunks": {"metric": "f1", "dev": [90.0, 91.0]}}}
        for way in ("none", "cross-view", "no-sides")
    ]
    settings = {"seeds": 2, "steps": 5, "extra": "", "recipe": ""}
    record = {"settings": settings, "runs": runs, "failed": ["x: y"]}
    text = Page(record, {"chunks": "Chunk"}).markdown()
    assert "| labels alone | 90.5 ± 6.4 (95.5) |" in text
    assert "| … without forward, backward | 90.5 ± 6.4 (96.8) |" in text
    assert "| … without future, past | (96.6) |" in text and "- No result: x: y." in text


def test_known_tasks_name_their_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = tasks_of(folder / "data", ["words"])
    assert (one.kind, one.examples, one.published) == ("tag", 40, "")
    (folder / "data" / "words").rename(folder / "data" / "ewt_supertags")
    (known,) = tasks_of(folder / "data", ["supertags"])
    assert known.published == "CCG" and known.folder.name == "ewt_supertags"


def test_a_process_trains_run_after_run_and_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "empty.toml").write_text("", encoding="utf-8")
    one = running.Worker(1)
    log = tmp_path / "log.txt"
    reasons = [one.train(tmp_path / "empty.toml", tmp_path / "run", log) for _ in range(2)]
    assert all("no training file" in reason for reason in reasons)
    assert one._process is not None
    first = one._process.pid
    one._process.kill()
    one._process.wait()
    assert "no training file" in one.train(tmp_path / "empty.toml", tmp_path / "run", log)
    assert one._process.pid != first
    one.close()
    assert one._process.returncode == 0


def test_figures_have_a_mark_or_a_line_for_each_series() -> None:
    marks = {"a": [Mark(50.0, 1.0, [49.0, 51.0]), None], "b": [None, Mark(60.0, 0.0, [60.0])]}
    picture = chart("scores", ["1 %", "5 %"], marks, "labels", True)
    root = ElementTree.fromstring(picture)
    hints = [node.text for node in root.iter("{http://www.w3.org/2000/svg}title")]
    assert hints == ["a: 50.0 ± 1.0", "b: 60.0 ± 0.0"]
    lines = curves("while learning", {"a": [(10.0, 20.0), (40.0, 30.0)]}, "train")
    (line,) = ElementTree.fromstring(lines).iter("{http://www.w3.org/2000/svg}polyline")
    assert line.get("points") == "56.0,276.0 624.0,40.0"
    assert chart("none", ["1"], {"a": [None]}, "x", True) == curves("none", {}, "x") == ""
