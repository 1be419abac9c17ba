"""The report is whole, escaped and self-contained whatever is in it, and says what it was given."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tasklm.evaluate.scores import Scores
from tasklm.forecasting.growth import Gain, Growth
from tasklm.report.costs import bert_base_times
from tasklm.report.label_growth import label_growth
from tasklm.report.report import ReportParts, render, write_report
from tasklm.report.score_tables import score_table
from tasklm.report.sections import learning_curves
from tasklm.report.selection import highlighted
from tests.report.checker import checked
from tests.report.parts import full, scores

EVIL = "<script>alert('x')</script> \"&\" \x00\ud800 </p> $x$ $\\frac{ <b> עברית"
NAMES = (
    "scores",
    "learning",
    "classes",
    "calibration",
    "mistakes",
    "raw",
    "data",
    "selected",
    "vectors",
    "attention",
    "cost",
    "reproduce",
)


def test_hostile_text_stays_text_in_every_part() -> None:
    page = checked(render(full(EVIL)))
    assert (
        page.shown.count("<script>alert('x')</script>") > 20
        and page.shown.count("$x$ $\\frac{ <b> עברית") > 20
    )
    assert "\x00" not in page.shown and "\ud800" not in page.shown
    assert "b" in page.names and all(value in ("auto",) for value in page.values("dir"))


def test_long_passages_keep_the_file_small(tmp_path: Path) -> None:
    path = tmp_path / "run" / "report.html"
    write_report(path, full("all work and no play <b> " * 4_000))  # 100 kB wherever text can stand
    checked(path.read_text(encoding="utf-8"))
    assert path.stat().st_size < 5_000_000


def test_many_classes_points_and_heads_keep_the_file_small() -> None:
    parts = full(
        "all work and no play <b> 汉字 " * 40, labels=50, points=500, layers=24, heads=16, tokens=16
    )
    names = [f"{number} " + "label " * 100 for number in range(150)]
    parts.confusion = (names, np.random.default_rng(0).integers(0, 9, (150, 150)).tolist())
    parts.mistakes = (list(parts.mistakes) * 7)[:200]
    made = render(parts)
    page = checked(made)
    assert len(made.encode()) < 5_000_000
    assert page.names.count("circle") > 1500


def test_every_part_is_shown_in_its_order() -> None:
    page = checked(render(full("harbour")))
    assert tuple(name for name in page.values("id") if not name.endswith("-title")) == NAMES
    assert {f"#{name}" for name in NAMES} <= set(page.values("href"))
    assert scores("harbour").verdict in page.shown
    for expected in (
        "1,200",
        "corpus passages",
        "987",
        "BERT-base",
        "10,000 times",
        "1.25 · 17 times",
        "70 (70%)",
        "1 min 35 s",
        "ability 0.99",
        "score 0.625 · ",
        "shared words: ",
        ("expected calibration error 0.0325"),
        "1.375",
        "4,300,000",
        ("The best cheap baseline, harbour, scores"),
        "layer 1, head 2: ",
        "95% on a neighbour",
        "2.75",
        "812.5",
        "after stage 2",
        "TLM, table 2",
        "ISS, table 3",
        "1.8e18",
        "4 of 8",
        ("confidence 0.950, accuracy 0.900, 81 examples"),
    ):
        assert expected in page.shown, expected
    assert {"circle", "path", "image", "mark", "bdi"} <= set(page.names)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (("curves",), ["learning"]),
        (("confusion",), ["classes"]),
        (("calibration",), ["calibration"]),
        (("mistakes",), ["mistakes"]),
        (("findings", "contamination"), ["data"]),
        (("selected",), ["selected"]),
        (("words",), ["selected"]),
        (("words_random",), ["selected"]),
        (("reading",), ["data"]),
        (("label_words",), ["selected"]),
        (("class_vectors",), ["vectors"]),
        (("attention",), ["attention"]),
        (("command",), ["reproduce"]),
        (("confusion", "mistakes"), ["classes", "mistakes"]),
        (("scores",), ["scores", "data", "cost"]),
    ],
)
def test_a_part_is_shown_with_its_data_and_left_out_without(
    given: tuple[str, ...], shown: list[str]
) -> None:
    whole = full("x")
    page = checked(render(ReportParts(**{name: getattr(whole, name) for name in given})))
    assert [name for name in page.values("id") if not name.endswith("-title")] == shown


def test_the_words_of_the_selection_are_told_apart() -> None:
    titles = {
        "words": "drawn at random from the corpus",
        "words_random": "the random selection",
        "label_words": "Indicative words of the labels",
    }
    for given in titles:
        shown = checked(render(ReportParts(**{given: getattr(full("x"), given)}))).shown
        assert [name for name, title in titles.items() if title in shown] == [given]


@pytest.mark.parametrize(
    "parts",
    [
        ReportParts(),
        ReportParts(notes=["started"]),
        ReportParts(curves=[{"step": 1, "loss": float("nan")}]),
        ReportParts(scores=Scores("accuracy", [], [])),
        ReportParts(confusion=([], [])),
    ],
)
def test_a_report_can_be_written_after_any_step(parts: ReportParts) -> None:
    page = checked(render(parts))
    assert "The model has not been scored yet." in page.shown
    assert ("section" in page.names) == bool(parts.notes)  # nothing to show: no empty section


def test_a_report_is_the_same_byte_for_byte() -> None:
    assert render(full("a")) == render(full("a"))


DRAW = """
from tasklm.report.charts import head_grid, histogram, line_chart
head = {"layer": 1, "head": 1, "kind": "both", "picture": [[0.5, 0.5], [1, 0]]}
drawn = [line_chart("a", {"b": [(0, 1), (3, 2)]}), histogram("h", [1, 2.5, 2.5], "x"), head_grid("g", [head], 2, ["hint"])]
"""


def test_charts_are_the_same_in_every_process_whatever_a_reader_has_set(tmp_path: Path) -> None:
    style = tmp_path / "matplotlibrc"
    style.write_text(
        "font.size: 30\naxes.grid: True\nlines.linewidth: 9\nsvg.fonttype: path\n", encoding="utf-8"
    )
    surroundings = {
        **os.environ,
        "PYTHONHASHSEED": "7",
        "MATPLOTLIBRC": str(style),
        "PYTHONIOENCODING": "utf-8",
    }
    other = subprocess.run(
        [sys.executable, "-c", DRAW + "print(*drawn)"],
        capture_output=True,
        encoding="utf-8",
        check=True,
        env=surroundings,
    ).stdout
    here: dict[str, list[str]] = {}
    exec(DRAW, here)  # type: ignore[arg-type]
    assert other == " ".join(here["drawn"]) + "\n"


def test_errors_come_before_notes() -> None:
    shown = checked(render(full("x"))).shown
    assert shown.index("error · x") < shown.index("note · x")


def test_matched_words_are_marked() -> None:
    assert highlighted("The Gene <is> here", {"gene"}) == "The <mark>Gene</mark> &lt;is&gt; here"
    page = render(
        ReportParts(
            selected=[
                {"text": "a small Gene", "matched_queries": ["the gene"], "matched": ["GENE"]}
            ]
        )
    )
    assert "a small <mark>Gene</mark>" in page


def section(page: str, name: str) -> str:
    return checked(page).shown and page.split(f' id="{name}"')[1].split("</section>")[0]


def test_notes_of_reading_come_first_in_the_data() -> None:
    parts = full("x")
    parts.reading = ["train: 168 examples left out because they also occur in dev or test"]
    shown = section(render(parts), "data")
    assert shown.index("168 examples left out") < shown.index("<table") and "168" not in section(
        render(parts), "reproduce"
    )


def test_what_a_checkpoint_cost_is_not_passed_over() -> None:
    parts = full("x")
    assert "10,000 times as much" in section(
        render(parts), "cost"
    ) and "BERT-base took 10,000 times" in render(parts)
    assert bert_base_times(1.29e12).endswith(" million times as much")
    parts.start = "bert-base-uncased"
    shown = section(render(parts), "cost")
    assert (
        "continued from bert-base-uncased, whose own training is not counted" in shown
        and "times as much" not in render(parts)
    )


def test_only_passages_with_marks_say_what_is_marked() -> None:
    passage = {"text": "a small gene", "matched_queries": ["the gene"]}
    assert "Marked" not in render(ReportParts(selected=[{**passage, "matched": []}]))
    assert "first task example listed" in render(
        ReportParts(selected=[{**passage, "matched": ["gene"]}])
    )


def test_attention_says_which_tokens_are_pictured_and_what_was_counted() -> None:
    parts = full("x")
    assert parts.attention is not None
    parts.attention["shown"] = ["[CLS]", "har", "##bour", "[SEP]"]
    shown = section(render(parts), "attention")
    assert (
        "<bdi>[CLS]</bdi> <bdi>har</bdi> <bdi>##bour</bdi> <bdi>[SEP]</bdi>" in shown
        and "Counted in 36 rows of dev" in shown
    )


def test_what_has_one_point_is_said_in_words_and_not_drawn() -> None:
    steps = itertools.product((1, 2, 190), (1, 2))
    losses = [
        {"stage": "stage 2", "step": step, "seed": seed, "loss: task": 1 / step}
        for step, seed in steps
    ]
    dev = [
        {"stage": "stage 2", "step": 190, "seed": seed, "dev score": 0.25 * seed} for seed in (1, 2)
    ]
    page = learning_curves([*losses, *dev])
    assert page.count("<svg") == 1 and "stage 2: loss" in page
    assert (
        "stage 2: dev score, only after step 190: dev score · seed 1 0.25, dev score · seed 2 0.5."
        in page
    )
    drawn = learning_curves(
        [*losses, *dev, {"stage": "stage 2", "step": 380, "seed": 1, "dev score": 0.75}]
    )
    assert drawn.count("<svg") == 2 and "alone" not in drawn


def test_scores_other_metrics_and_costs_are_tables_of_their_own() -> None:
    page = score_table(scores("TF-IDF"))
    heads = [
        re.findall(r"<th scope=\"col\"[^>]*>([^<]*)", table)
        for table in re.findall(r"<thead>.*?</thead>", page)
    ]
    assert heads == [
        ["model", "what", "dev", "test", "ours − this", "p"],
        ["model", "each seed", "micro-F1", "accuracy", "weighted F1"],
        ["model", "FLOPs", "6·N·tokens", "time", "parameters", "passages"],
    ]
    assert '<td class="n" data-sort="4300000" data-name="parameters">4,300,000</td>' in page


def test_charts_stand_beside_one_another_and_are_not_as_wide_as_the_page() -> None:
    points, gain = ((100.0, 20.0), (200.0, 30.0)), Gain(100, 1.0, 0.0, 2.0)
    growth = Growth("macro_f1", 200, points, points, gain, gain)
    shown = label_growth(growth.to_dict())
    assert shown.index('<div class="charts"><figure') > 0


def test_ranks_that_are_all_alike_have_no_chart() -> None:
    alike, apart = full("x"), full("x")
    alike.selected_ranks = [1, 1, 1]
    assert "Ranks of the selected" in render(apart)
    assert "Ranks of the selected" not in render(alike)
