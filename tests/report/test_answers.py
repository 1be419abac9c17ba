"""Classes, calibration and mistakes show the numbers they were given, and cells lead to their
mistakes.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
from sklearn.metrics import precision_recall_fscore_support

from tasklm.evaluate.confusion import ClassScore
from tasklm.report.answers import MOST_SCORED, OPEN_MISTAKES, calibration, classes, mistakes
from tasklm.report.report import ReportParts, render
from tests.report.parts import full, insights

GOLD = ["cat", "cat", "cat", "dog", "dog", "owl"]
FOUND = ["cat", "dog", "cat", "dog", "dog", "cat"]
NAMES = ["cat", "dog", "owl"]


def matrix_of(names: list[str]) -> list[list[int]]:
    return [
        [sum((g, f) == (row, column) for g, f in zip(GOLD, FOUND, strict=True)) for column in names]
        for row in names
    ]


def rows_of(page: str) -> list[list[str]]:
    found = re.findall(r"<tr[^>]*>(.*?)</tr>", page.split("By class")[1])
    return [
        [re.sub(r"<[^>]+>", "", cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)]
        for row in found
    ]


def test_precision_recall_and_f1_are_those_of_scikit_learn() -> None:
    precision, recall, f1, support = precision_recall_fscore_support(
        GOLD, FOUND, labels=NAMES, zero_division=0
    )
    expected = [
        [
            name,
            *(f"{100 * score[at]:.1f}" for score in (precision, recall, f1)),
            str(support[at]),
            str(FOUND.count(name)),
        ]
        for at, name in enumerate(NAMES)
    ]
    assert rows_of(classes((NAMES, matrix_of(NAMES)), []))[1:] == expected


def test_cells_show_counts_and_shares_and_lead_to_mistakes() -> None:
    page = classes((NAMES, matrix_of(NAMES)), ["cat", "owl"])
    assert (
        'title="cat → dog: 1 of 3 (33.3%)"' in page and 'title="owl → cat: 1 of 1 (100.0%)"' in page
    )
    assert page.count('href="#mistakes"') == 2  # the cells off the diagonal that are not empty
    assert 'data-gold="owl" data-predicted="cat"' in page
    assert 'href="#mistakes"' not in classes(
        (NAMES, matrix_of(NAMES)), ["B-PER O O"]
    )  # mistakes of sequences have no cell


def test_many_classes_show_their_most_frequent_confusions() -> None:
    matrix = np.eye(60, dtype=int)
    matrix[7, 3] = 5
    page = classes(([f"class {number}" for number in range(60)], matrix.tolist()), [])
    assert "The most frequent confusions between 60 classes." in page
    assert re.search(
        (
            r'class 7</bdi></th><td data-sort="class '
            r'3"><bdi>class 3</bdi></td><td class="n" data-sort="5">5<'
        ),
        page,
    )
    assert page.count("<image") == 1


def test_calibration_draws_the_bins_that_have_examples() -> None:
    page = calibration(insights("x")["calibration"])
    assert page.count("<circle") == 2 * 9  # of ten bins one is empty, before and after
    assert (
        "confidence 0.150, accuracy 0.070, 1 examples" in page
        and "confidence 0.150, accuracy 0.100, 1 examples" in page
    )
    assert calibration(None) == ""


def test_of_many_classes_the_most_frequent_are_scored() -> None:
    given = [
        (f"class {number}", ClassScore(0.5, 0.25, 1 / 3, gold=number, predicted=1))
        for number in range(MOST_SCORED + 7)
    ]
    page = classes(None, [], given)
    assert [row[0] for row in rows_of(page)[1:]] == [name for name, _ in given[7:]]
    assert (
        "The 7 classes with the fewest examples are left out." in page
        and "left out" not in classes(None, [], given[7:])
    )


@pytest.mark.parametrize("part", ["classes", "calibration", "mistakes", "vectors", "attention"])
def test_it_is_said_whose_answers_are_shown(part: str) -> None:
    section = render(full("x")).split(f' id="{part}"')[1].split("</section>")[0]
    assert "seed 2 of 3, the best on dev" in section
    assert part in ("vectors", "attention") or "n test" in section  # on, or On


def test_a_temperature_judged_where_it_was_chosen_is_called_so() -> None:
    found = insights("x")["calibration"]
    assert "Without a test set" not in calibration(found) and "Without a test set" in calibration(
        {**found, "split": "dev"}
    )


def test_no_order_is_claimed_where_no_probability_is_known() -> None:
    entries = [{"text": "x", "gold": "a", "predicted": "none", "probability": None}] * (
        OPEN_MISTAKES + 1
    )
    for probability, title, more in (
        (None, ">Mistakes<", "1 more<"),
        (0.5, ">Most confident mistakes<", "1 more, in order of falling confidence<"),
    ):
        page = render(
            ReportParts(mistakes=[{**entry, "probability": probability} for entry in entries])
        )
        assert (
            page.count(title) == 2 and page.count(more) == 1
        )  # the title stands in the contents too


@pytest.mark.parametrize("count", [1, OPEN_MISTAKES, OPEN_MISTAKES + 1])
def test_mistakes_beyond_the_first_are_folded(count: int) -> None:
    page = mistakes(
        [
            {"text": f"text {number}", "gold": "a", "predicted": "b", "probability": 0.5}
            for number in range(count)
        ]
    )
    assert page.count('class="card"') == count
    assert page.count("<details>") == int(count > OPEN_MISTAKES)
    assert mistakes([]) == ""
