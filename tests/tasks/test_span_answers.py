"""Answers from the text: the best of all windows, the threshold of silence, and a model that learns
both.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from tests.tasks.span_samples import TEXTS, example, task

from tasklm.errors import RecipeError
from tasklm.recipe.data_sections import Kind
from tasklm.recipe.model_sections import Tokens
from tasklm.tasks.answer_windows import Window
from tasklm.tasks.base import NONE, TASKS, Unit
from tasklm.tasks.examples import Example, Splits
from tasklm.tasks.heads.answer_search import best_threshold
from tasklm.tasks.readers.squad import MISSING
from tasklm.tasks.span import Span
from tasklm.tokens.tokenizer import train_vocabulary

# answers


def test_the_best_over_all_windows_is_given_and_white_space_is_passed_over() -> None:
    context = "one  two three"
    spans = np.array([[0, 0], [0, 3], [3, 5], [4, 8], [8, 14]], np.int32)
    units: list[Unit] = [
        Window([], [], None, 0, 0, spans=spans),
        Window([], [], None, 0, 0, spans=spans[:2]),
    ]
    kept = [(-3.0, [(2, 2, -0.1), (3, 4, -0.5)]), (-0.2, [(1, 1, -4.0)])]
    (found,) = task().answers([example(context, None)], units, kept)
    assert found == {
        "answer": "two three",
        "begin": 5,
        "end": 14,
        "score": pytest.approx(math.exp(-0.5)),
        "answerable": True,
    }
    # the difference to "no answer" is -0.5 - min(-3.0, -0.2) = 2.5
    assert task(threshold=2.4).answers([example(context, None)], units, kept)[0]["answerable"]
    silent = task(threshold=2.6).answers([example(context, None)], units, kept)[0]
    assert silent == {
        "answer": "",
        "begin": 0,
        "end": 0,
        "score": pytest.approx(math.exp(-3.0)),
        "answerable": False,
    }
    assert task(threshold=99.0, unanswerable=False).answers([example(context, None)], units, kept)[
        0
    ]["answerable"]


def test_the_threshold_is_the_best_of_all_there_are() -> None:
    draw = np.random.default_rng(3)
    context, count = "alpha beta gamma delta", 40
    spans = np.array([[0, 0], [0, 5], [6, 10], [11, 16], [17, 22]], np.int32)
    golds: list[Any] = [[], [("beta", 6)], [("alpha beta", 0)], [("delta", 17)]]
    for _ in range(5):
        examples = [example(context, golds[draw.integers(4)]) for _ in range(count)]
        units: list[Unit] = [
            Window([], [], None, 0, number, spans=spans) for number in range(count)
        ]
        kept = [
            (
                float(draw.integers(-6, 0)),
                [(1, int(draw.integers(1, 4)), float(draw.integers(-6, 0)))],
            )
            for _ in range(count)
        ]
        score = task().metric("answer_f1")

        def f1(
            threshold: float,
            examples: Any = examples,
            units: Any = units,
            kept: Any = kept,
            score: Any = score,
        ) -> float:
            some = task(threshold=threshold)
            predicted = [some.label_of(answer) for answer in some.answers(examples, units, kept)]
            return float(
                score.value(score.statistics([one.label for one in examples], predicted).sum(0))
            )

        tuned = task().tuned(examples, units, kept)
        best = max(f1(step / 4) for step in range(-40, 41))
        assert f1(tuned.threshold) == pytest.approx(best)
        assert Span.from_dict(json.loads(json.dumps(tuned.to_dict()))).threshold == tuned.threshold
        assert task(unanswerable=False).tuned(examples, units, kept).threshold == 0.0


def test_of_equally_good_thresholds_the_one_nearest_to_zero_is_taken() -> None:
    metric, right, wrong = task().metric("exact_match"), [1.0, 1.0], [0.0, 1.0]
    for differences, given, expected in [
        (
            [5.0, 1.0, -4.0],
            [right, wrong, right],
            3.0,
        ),  # the first alone, or (-5.0) all: two of three are right
        ([5.0, 1.0, -4.0], [right, right, wrong], -1.5),
        ([2.0, 2.0], [wrong, right], 1.0),  # equal differences go together: one right in any case
    ]:
        held_back = [wrong if one == right else right for one in given]
        found = best_threshold(metric, np.array(differences), np.array(given), np.array(held_back))
        assert found == expected


def test_questions_that_have_no_candidate_do_not_count_for_the_threshold() -> None:
    metric = task().metric("exact_match")
    assert best_threshold(metric, np.array([-np.inf]), np.ones((1, 2)), np.ones((1, 2))) == 0.0


def test_gold_answers_are_reduced_to_texts_and_unknown_metrics_named() -> None:
    score = task().metric("exact_match")
    gold: list[Any] = [[("the cat", 3), ("a dog", 9)], [], [("x", 0)]]
    assert (score.name, float(score.value(score.statistics(gold, ["dog", "", "y"]).sum(0)))) == (
        "exact_match",
        pytest.approx(2 / 3),
    )
    with pytest.raises(RecipeError, match="answer_f1, exact_match"):
        task().metric("accuracy")


def test_the_task_comes_from_its_examples_and_survives_saving() -> None:
    some = [example("a b", []), example("a b", [("a", 0)])]
    all_answered = [example("a b", [("a", 0)])]
    settings = Kind(stride=7, answer_tokens=9)
    assert Span.from_examples(all_answered, settings).to_dict() == {
        "kind": "span",
        "stride": 7,
        "answer_tokens": 9,
        "unanswerable": False,
        "threshold": 0.0,
    }
    assert Span.from_examples(some, settings).unanswerable
    assert TASKS.get("span") is Span and task().labels == task().classes([]) == []


# audit and baselines


def test_answers_that_are_not_in_their_text_are_reported_with_file_and_line() -> None:
    good = example("a b c", [("b", 2)])
    bad = Example(("q", "a b c"), [("zebra", MISSING)], "train.json", 17)
    (answerable, train, dev) = task(unanswerable=False).audit(
        Splits([good] * 19 + [bad], [good, example("x", [])])
    )
    assert answerable.level == "warning" and "1 of 2 in dev" in answerable.message
    assert (
        train.level == "warning"
        and "1 of 20 questions" in train.message
        and train.examples == ("train.json, line 17: 'q': 'zebra'",)
    )
    assert dev.level == "ok"
    found = task().audit(Splits([good, bad], [bad]))
    assert [finding.level for finding in found] == ["ok", "error", "warning"]


def test_the_baselines_are_sentences_or_nothing() -> None:
    context = (
        "The sky is blue today. Marie Curie found radium in 1898. It costs 3.50 in the U.K now!"
    )
    train = [example("The house. In the sky.", [("sky", 18)], "x")]
    found = task().baselines(
        train,
        {
            "dev": [
                example(context, [], "Who found the radium?"),
                example(context, [], "What costs it?"),
            ]
        },
        "answer_f1",
    )
    assert found["majority"]["dev"] == ["The sky is blue today."] * 2
    assert found["best sentence"]["dev"] == [
        "Marie Curie found radium in 1898.",
        "It costs 3.50 in the U.K now!",
    ]
    silent = task().baselines(
        [example("a.", []), example("a.", []), example("a.", [("a", 0)])],
        {"test": [example(context, [])]},
        "answer_f1",
    )
    assert silent["majority"] == {"test": [""]}
    chinese = task().baselines(train, {"dev": [example(TEXTS[1], [], "上海人口")]}, "answer_f1")
    assert chinese["best sentence"]["dev"] == ["上海很大，人口众多。"]


# the whole way


def bracketed(count: int, seed: int) -> list[Example]:
    """Texts of 40 words in which the answer is what stands in brackets; every third has none."""
    draw = np.random.default_rng(seed)
    found = []
    for number in range(count):
        words = [str(word) for word in draw.choice(["alpha", "beta", "gamma", "delta"], 40)]
        at, size = int(draw.integers(1, 30)), int(draw.integers(1, 5))
        if number % 3 == 0:
            found.append(example(" ".join(words), [], "what?"))
            continue
        words[at - 1], words[at + size] = "(", ")"
        text, answer = " ".join(words), " ".join(words[at : at + size])
        found.append(example(text, [(answer, text.index("(") + 2)], "what?"))
    return found


class Neighbours(torch.nn.Module):
    """A token, the one before and the one after it; [CLS] sees whether a bracket opens anywhere: an
    encoder that is enough here.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(size, 8)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        here = self.embedding(tokens)
        around = torch.cat([here.roll(1, 1), here, here.roll(-1, 1)], -1)
        return torch.cat([around, around.amax(1, keepdim=True).expand_as(around)], -1)


def padded(units: list[Unit]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    length, most = max(len(unit.tokens) for unit in units), max(len(unit.places) for unit in units)
    tokens = torch.zeros(len(units), length, dtype=torch.long)
    places = torch.zeros(len(units), most, dtype=torch.long)
    targets = torch.full((len(units), most, 2), NONE)
    for row, unit in enumerate(units):
        tokens[row, : len(unit.tokens)] = torch.tensor(unit.tokens)
        places[row, : len(unit.places)] = torch.tensor(unit.places)
        targets[row, : len(unit.places)] = torch.from_numpy(unit.targets).long()
    return tokens, places, targets


def test_a_small_model_learns_to_answer_and_to_keep_silent() -> None:
    torch.manual_seed(0)
    known = train_vocabulary([["alpha beta gamma delta ( ) what ?"] * 5], Tokens(), 300)
    train, dev = bracketed(120, 1), bracketed(60, 2)
    span = Span.from_examples(train, Kind(stride=8))
    encoder, head = Neighbours(len(known)), span.head(48, 0.0)
    optimiser = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=0.01)

    def outputs_of(units: list[Unit]) -> tuple[torch.Tensor, torch.Tensor]:
        tokens, places, targets = padded(units)
        states = encoder(tokens)
        return head(
            states.gather(1, places.unsqueeze(-1).expand(-1, -1, states.shape[-1]))
        ), targets

    units = span.encode(train, known, 32)
    assert len(units) > len(train)
    for _ in range(80):
        optimiser.zero_grad()
        outputs, targets = outputs_of(units)
        (span.loss(outputs, targets) / span.count(targets)).backward()
        optimiser.step()
    held = span.encode(dev, known, 32)
    rows = outputs_of(held)[0].detach().double().numpy()
    kept = [span.keep(row[: len(unit.places)]) for row, unit in zip(rows, held, strict=True)]
    tuned = span.tuned(dev, held, kept)
    metric = tuned.metric("exact_match")
    predicted = [tuned.label_of(answer) for answer in tuned.answers(dev, held, kept)]
    assert (
        float(metric.value(metric.statistics([one.label for one in dev], predicted).sum(0))) > 0.9
    )
