"""Sets of each kind of task, what is kept of dev, and which promises are refused."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasklm.coverage.calibration import (
    FILE,
    Calibration,
    Seen,
    content_of_model,
    read_calibration,
    sets_for,
    write_calibrations,
)
from tasklm.coverage.known_words import KnownWords
from tasklm.coverage.lines import rows_of, sentences
from tasklm.coverage.measured import Measured, measured
from tasklm.coverage.quantiles import rank
from tasklm.errors import RecipeError, RunError
from tasklm.serve.predictor import Predictor
from tasklm.storage.files import read_json
from tasklm.tasks.answer_sets import ClassSets, Intervals, LabelSets, OptionSets
from tasklm.tasks.base import Answer
from tasklm.tasks.examples import Example
from tasklm.tokens.tokenizer import Vocabulary
from tests.linear_models import fitted, write_linear
from tests.tasks.wide_samples import labelled, task_of

WORDS = ["red", "green", "blue", "cat", "dog", "bird"]


def drawn(count: int, seed: int) -> tuple[list[Example], list[Answer]]:
    """Examples of two classes, of which one is rare, and answers that are right now and then."""
    draw = np.random.default_rng(seed)
    examples, answers = [], []
    for _ in range(count):
        right = "rare" if draw.random() < 0.2 else "usual"
        sure = float(draw.beta(3, 2))
        other = "usual" if right == "rare" else "rare"
        odds = {right: sure, other: 0.8 * (1 - sure), "never": 0.2 * (1 - sure)}
        text = " ".join([*draw.choice(WORDS, 8), *["new"] * int(draw.integers(0, 3))])
        examples.append(Example((text,), right))
        answers.append({"label": max(odds, key=lambda name: odds[name]), "probabilities": odds})
    return examples, answers


TRAIN = [Example((" ".join(WORDS),), "usual")]


@pytest.mark.parametrize("promised", [0.8, 0.9, 0.95])
def test_the_promise_is_kept_on_texts_drawn_alike_and_for_each_class(promised: float) -> None:
    counts: Counter[str] = Counter()
    for round_ in range(30):
        calibration = Calibration.of(ClassSets(), TRAIN, *drawn(400, round_))
        one = measured(ClassSets(), calibration, promised, *drawn(400, 1000 + round_))
        counts.update(right=one.right, count=one.count)
        for name, (right, count) in one.by_class.items():
            counts.update({f"{name} right": right, f"{name} count": count})
    assert counts["right"] / counts["count"] == pytest.approx(promised, abs=0.015)
    for name in ("rare", "usual"):
        share = counts[f"{name} right"] / counts[f"{name} count"]
        assert share > promised - 0.02


@pytest.mark.parametrize(("count", "digits"), [(60, 6), (65, 6), (65, 1), (200, 2)])
def test_labels_and_texts_together_are_missed_as_often_as_promised(count: int, digits: int) -> None:
    """Whatever the one has to do with the other, and however many texts are equally new."""
    draw = np.random.default_rng(count)
    known, covered = KnownWords.of(["a"]), []
    for _ in range(3000):
        strangeness = draw.uniform(size=count + 20)
        shares = np.round(0.5 * strangeness + 0.5 * draw.uniform(size=count + 20), digits)
        order = np.argsort(strangeness[:count])
        seen = {"": Seen(strangeness[order], shares[order])}
        promise = Calibration(seen, known).promise(0.9)
        hits = (strangeness[count:] <= promise.limit("")) & (shares[count:] <= promise.newest)
        covered.append(hits.mean())
    assert np.mean(covered) == pytest.approx(rank(count, 0.1) / (count + 1), abs=0.005)


def test_texts_unlike_dev_are_unknown_and_part_of_the_promise() -> None:
    calibration = Calibration.of(ClassSets(), TRAIN, *drawn(400, 1))
    promise = calibration.promise(0.9)
    answer: Answer = {"probabilities": {"usual": 0.99, "rare": 0.01}}
    assert promise.row(ClassSets(), "red cat blue dog", answer) == {"labels": {"usual": 0.99}}
    strange = promise.row(ClassSets(), "ein ganz anderer Text", answer)
    assert strange == {"unknown": "the text is unlike those of dev: 100% of its words are new"}
    assert "unknown" in promise.row(ClassSets(), "?!", answer)
    # at most a fifth of what may be missed, and none where dev is too small to tell
    shares = np.concatenate([one.new_words for one in calibration.seen.values()])
    assert (shares > promise.newest).sum() < 0.02 * 401
    few = Calibration.of(ClassSets(), TRAIN, *drawn(40, 1)).promise(0.9)
    assert few.newest == math.inf
    assert "labels" in few.row(ClassSets(), "ein ganz anderer Text", answer)


def test_an_empty_set_is_unknown() -> None:
    answers: list[Answer] = [{"probabilities": {"a": 0.9, "b": 0.1}}] * 30
    examples = [Example(("red",), "a")] * 30
    promise = Calibration.of(ClassSets(), TRAIN, examples, answers).promise(0.9)
    doubtful: Answer = {"probabilities": {"a": 0.5, "b": 0.5}}
    row = promise.row(ClassSets(), "red", doubtful)
    assert row == {"unknown": "none of these: no label is likely enough"}


def test_sets_of_each_kind() -> None:
    odds: Answer = {"probabilities": {"a": 0.5, "b": 0.3, "c": 0.2}}
    classes = ClassSets()
    assert classes.strangeness(odds, "b") == pytest.approx(0.7)
    assert classes.within(odds, {"": 0.75, "c": 0.9}) == {"labels": {"a": 0.5, "b": 0.3, "c": 0.2}}
    assert classes.within(odds, {"": 0.75, "b": 0.6}) == {"labels": {"a": 0.5}}
    labels = LabelSets()
    assert labels.strangeness(odds, ("a", "c")) == pytest.approx(0.8)
    assert labels.strangeness(odds, ()) == 0.0 and labels.strangeness(odds, ("new",)) > 1
    assert labels.within(odds, {"": 0.75}) == {"labels": {"a": 0.5, "b": 0.3}}
    options = OptionSets()
    answer: Answer = {"probabilities": [0.2, 0.7, 0.1]}
    assert options.strangeness(answer, 1) == pytest.approx(0.3)
    assert options.within(answer, {"": 0.85}) == {
        "options": [{"number": 1, "probability": 0.7}, {"number": 0, "probability": 0.2}]
    }
    assert Intervals().strangeness({"score": 2.0}, 3.5) == 1.5
    assert Intervals().within({"score": 2.0}, {"": 1.5}) == {"score": 2.0, "interval": [0.5, 3.5]}


def test_kinds_without_sets_say_why() -> None:
    for kind, reason in (("tag", "each word has an answer"), ("span", "any part of a text")):
        with pytest.raises(RecipeError, match=reason) as refused:
            sets_for(task_of(kind, labelled(kind, 20, 1)))
        assert "Leave --coverage out" in str(refused.value)


@pytest.mark.parametrize("kind", ["classify", "multilabel", "regress", "choice"])
def test_linear_models_keep_their_promise(
    kind: str, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    train, dev, test = (
        labelled(kind, count, seed) for count, seed in ((60, 1), (200, 3), (300, 4))
    )
    task, wide = fitted(task_of(kind, train), train, dev)
    folder = write_linear(tmp_path / "model", task, wide, vocabulary)
    predictor = Predictor(folder)
    with pytest.raises(RunError, match=r"not been calibrated.*fit again"):
        predictor.sets(test, 0.9)
    calibration = Calibration.of(sets_for(task), train, dev, predictor.answers(dev))
    content = content_of_model(read_json(folder / "config.json"))
    write_calibrations(folder, content, {"": calibration})
    again = read_calibration(folder, model=content)
    assert again.to_dict() == calibration.to_dict()
    rows = predictor.sets(test, 0.9)
    right = 0
    for row, example in zip(rows, test, strict=True):
        right += holds(row, example)
    assert 0.83 < right / len(test) <= 1.0
    one = measured(sets_for(task), calibration, 0.9, test, predictor.answers(test))
    assert one.right == right and one.count == len(test)
    assert one.unlike + one.empty == sum("unknown" in row for row in rows)


def holds(row: dict[str, Any], example: Example) -> bool:
    """Whether a set has the right answer, by what is printed alone."""
    if "unknown" in row:
        return False
    if "interval" in row:
        return bool(row["interval"][0] <= example.label <= row["interval"][1])
    if "options" in row:
        return example.label in [one["number"] for one in row["options"]]
    if isinstance(example.label, tuple):
        return set(example.label) <= set(row["labels"])
    return example.label in row["labels"]


def test_promises_that_dev_is_too_small_for_are_refused_with_the_number_that_is_needed() -> None:
    calibration = Calibration.of(ClassSets(), TRAIN, *drawn(30, 1))
    with pytest.raises(RunError, match=r"at least 99 dev examples.* on 30\. Ask for at most 96 %"):
        calibration.promise(0.99)
    assert calibration.promise(0.96).coverage == 0.96
    for wrong in (0.0, 1.0, 95.0, math.nan):
        with pytest.raises(RecipeError, match="not between 0 and 1"):
            calibration.promise(wrong)


def test_damage_and_foreign_calibrations_are_refused(tmp_path: Path) -> None:
    write_calibrations(tmp_path, "this", {"": Calibration.of(ClassSets(), TRAIN, *drawn(30, 1))})
    path = tmp_path / FILE
    whole = path.read_text(encoding="utf-8")
    with pytest.raises(RunError, match=r"another model.*fit again"):
        read_calibration(tmp_path, model="other")
    path.write_text(whole.replace('"usual"', '"usuaI"'), encoding="utf-8")
    with pytest.raises(RunError, match="checksum does not match"):
        read_calibration(tmp_path)
    path.write_text(whole[: len(whole) // 2], encoding="utf-8")
    with pytest.raises(RunError, match="not JSON"):
        read_calibration(tmp_path)
    for change in (
        {"format": 99},
        {"tasks": {"": {}}},
        {"tasks": []},
        {"tasks": {"": {"seen": {"a": {"strangeness": "1 0", "new_words": "0 0"}}}}},
        {"tasks": {"": {"seen": {"a": {"strangeness": "nan", "new_words": "0"}}}}},
        {"tasks": {"": {"seen": {"a": {"strangeness": "0", "new_words": ""}}}}},
    ):
        values = {**json.loads(whole), **change}
        values.pop("crc32")
        path.write_text(json.dumps(values), encoding="utf-8")
        with pytest.raises(RunError):
            read_calibration(tmp_path)


def test_known_words_are_known_and_tables_of_strangers_are_bounded() -> None:
    known = KnownWords.of(["the cat sat", "on the mat"])
    assert known.share_of_new("The MAT, the cat!") == 0.0
    assert known.share_of_new("the cat flies") == pytest.approx(1 / 3, abs=1e-5)
    assert known.share_of_new("...") == 1.0
    again = KnownWords.from_dict(known.to_dict())
    assert (again.bits == known.bits).all()
    many = KnownWords.of([f"word{number}" for number in range(3000)])
    strangers = np.mean([many.share_of_new(f"other{number}") for number in range(3000)])
    assert strangers > 0.9
    for bits in ("", "!!", "eJwDAAAAAAE="):
        with pytest.raises(ValueError):
            KnownWords.from_dict({"bits": bits})


def test_what_is_measured_is_told_in_words() -> None:
    calibration = Calibration.of(ClassSets(), TRAIN, *drawn(60, 1))
    results = [
        measured(ClassSets(), calibration, promised, *drawn(300, 2)) for promised in (0.9, 0.99)
    ]
    assert [Measured.from_dict(json.loads(json.dumps(one.to_dict()))) for one in results] == results
    rows = rows_of(results)
    assert rows[0][0] == "90%" and f"{results[0].coverage:.1%}" in rows[0][1]
    assert rows[1][1] == "takes 99 dev examples"
    assert "Calibrated on 60 dev examples" in sentences(results)[0]
    untested = measured(ClassSets(), calibration, 0.9, [], [])
    assert "no test set" in " ".join(sentences([untested])) and rows_of([untested])[0][1] == "–"
