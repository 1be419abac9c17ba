from __future__ import annotations

import itertools
import json
import math
from typing import Any

import numpy as np
import pytest
import torch

from tasklm.errors import RecipeError
from tasklm.recipe.data_sections import Kind
from tasklm.recipe.model_sections import Tokens
from tasklm.tasks.answer_windows import Window, window_starts
from tasklm.tasks.base import NONE, TASKS, Floats, Unit
from tasklm.tasks.examples import Example, Splits
from tasklm.tasks.heads.answer_search import RANK, best_answers, best_threshold
from tasklm.tasks.readers.squad import MISSING
from tasklm.tasks.span import Span
from tasklm.tokens.tokenizer import Vocabulary, train_vocabulary

TEXTS = [
    "Die Größe des Café beträgt übrigens zwölf Meter. Marie Curie wohnte dort, sagt man.",
    "北京是中国的首都。上海很大，人口众多。",
    "I 😀 love 👩‍👩‍👧 pizza 🍕, and the naïve façade of Ångström's house costs $3.50!",
    "cafe\u0301 and ﬁne wine \u00a0 with  odd   spaces\tand tabs",
]
QUESTION = "Wer wohnte in dem Café? 谁 😀"


def vocabulary(kind: str = "wordpiece") -> Vocabulary:
    return train_vocabulary([TEXTS * 3 + [QUESTION] * 3], Tokens(kind=kind), 400)


def example(context: str, label: Any, question: str = QUESTION) -> Example:
    return Example((question, context), label, "some.json", 1)


def task(**changed: Any) -> Span:
    return Span(**{"stride": 4, "answer_tokens": 30, "unanswerable": True, **changed})


def outputs_for(places: int, seed: int) -> Floats:
    return np.random.default_rng(seed).normal(size=(places, 2 + 2 * RANK)) * 2


def pair_score(outputs: Floats, start: int, end: int) -> float:
    """The definition, one pair at a time."""

    def log_p(scores: list[float], at: int) -> float:
        return scores[at] - math.log(sum(math.exp(score) for score in scores))

    ends = [
        sum(a * b for a, b in zip(row[2 + RANK :], outputs[start, 2 : 2 + RANK], strict=True))
        / math.sqrt(RANK)
        + row[1]
        for row in outputs
    ]
    return log_p([row[0] for row in outputs], start) + log_p(ends, end)


# decoding


@pytest.mark.parametrize(
    ("places", "longest", "seed"), [(2, 5, 0), (9, 3, 1), (12, 30, 2), (17, 1, 3)]
)
def test_a_beam_over_all_starts_finds_the_best_pairs(places: int, longest: int, seed: int) -> None:
    outputs = outputs_for(places, seed)
    pairs = [(s, e) for s in range(1, places) for e in range(s, min(places, s + longest))]
    expected = sorted(((pair_score(outputs, s, e), s, e) for s, e in pairs), reverse=True)
    none, found = best_answers(outputs, places, longest)
    assert none == pytest.approx(pair_score(outputs, 0, 0))
    assert [pair[:2] for pair in found] == [(s, e) for _, s, e in expected[:places]]
    assert [pair[2] for pair in found] == pytest.approx(
        [score for score, _, _ in expected[:places]]
    )


def test_a_small_beam_looks_at_the_best_starts_only() -> None:
    outputs = outputs_for(12, 5)
    starts = sorted(range(1, 12), key=lambda s: -outputs[s, 0])[:3]
    expected = max(
        (pair_score(outputs, s, e), s, e) for s in starts for e in range(s, min(12, s + 4))
    )
    found = best_answers(outputs, 3, 4)[1]
    assert (
        len(found) == 3 and found[0][:2] == expected[1:] and {s for s, _, _ in found} <= set(starts)
    )


def test_a_window_without_text_has_no_candidates() -> None:
    none, found = best_answers(outputs_for(1, 0), 20, 30)
    assert none == pytest.approx(0.0) and found == []


# loss


def targets_for(places: list[int], marks: list[tuple[int, int] | None], width: int) -> torch.Tensor:
    targets = torch.full((len(places), width, 2), NONE)
    for row, (size, pair) in enumerate(zip(places, marks, strict=True)):
        if pair is not None:
            targets[row, :size] = 0
            targets[row, pair[0], 0] = targets[row, pair[1], 1] = 1
    return targets


def test_the_loss_is_that_of_a_plain_loop_and_padding_changes_nothing() -> None:
    sizes, marks = [5, 8, 3, 4], [(1, 3), (0, 0), (2, 2), None]
    rows = [outputs_for(size, seed) for seed, size in enumerate(sizes)]
    expected = -sum(
        pair_score(row, *pair) for row, pair in zip(rows, marks, strict=True) if pair is not None
    )
    for width in (8, 20):
        outputs = (
            torch.randn(4, width, 2 + 2 * RANK, generator=torch.Generator().manual_seed(1)) * 50
        )
        for row, values in enumerate(rows):
            outputs[row, : len(values)] = torch.from_numpy(values)
        outputs.requires_grad_()
        targets = targets_for(sizes, marks, width)
        loss = task().loss(outputs, targets)
        assert loss.item() == pytest.approx(expected, rel=1e-5)
        assert task().loss(outputs, targets.to(torch.int8)).item() == loss.item()
        with torch.autocast("cpu", torch.bfloat16):
            assert task().loss(outputs, targets).item() == loss.item()
        assert task().count(targets) == 3
        loss.backward()
        gradient = outputs.grad
        assert gradient is not None and bool(torch.isfinite(gradient).all())
        assert not gradient[targets[..., 0] == NONE].any()


def test_a_head_learns_starts_and_the_ends_that_belong_to_them() -> None:
    """Two questions whose starts are plain; the end depends on the start alone."""
    torch.manual_seed(0)
    states = torch.randn(2, 6, 16)
    states[1, 3:] = states[0, 3:]
    targets = targets_for([6, 6], [(1, 4), (2, 5)], 6)
    span = task()
    head = span.head(16, 0.0)
    optimiser = torch.optim.Adam(head.parameters(), lr=0.01)
    for _ in range(150):
        optimiser.zero_grad()
        loss = span.loss(head(states), targets)
        loss.backward()
        optimiser.step()
    found = [span.keep(row)[1][0][:2] for row in head(states).detach().double().numpy()]
    assert found == [(1, 4), (2, 5)]


# encoding


@pytest.mark.parametrize(
    ("tokens", "room", "shared"), [(0, 5, 2), (5, 5, 2), (6, 5, 2), (40, 7, 3), (41, 8, 0)]
)
def test_windows_cover_every_token_and_share_what_they_should(
    tokens: int, room: int, shared: int
) -> None:
    starts = window_starts(tokens, room, shared)
    windows = [list(range(start, min(tokens, start + room))) for start in starts]
    assert sorted({token for window in windows for token in window}) == list(range(tokens))
    for before, after in itertools.pairwise(windows):
        assert len(set(before) & set(after)) == shared and set(after) - set(before)


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_offsets_map_back_for_accents_chinese_and_emoji(kind: str) -> None:
    known = vocabulary(kind)
    cases = [
        (TEXTS[0], "Café beträgt übrigens"),
        (TEXTS[0], "zwölf"),
        (TEXTS[1], "中国"),
        (TEXTS[1], "上海"),
        (TEXTS[2], "😀"),
        (TEXTS[2], "pizza 🍕"),
        (TEXTS[2], "naïve façade"),
        (TEXTS[2], "$3.50"),
        (TEXTS[3], "wine \u00a0 with"),
        (TEXTS[3], "and tabs"),
    ]
    for (context, answer), length in itertools.product(cases, (400, 48)):
        span = task(stride=20, unanswerable=False)
        examples = [example(context, [(answer, context.index(answer))], "谁?")]
        units = span.encode(examples, known, length)
        room = length - 3 - len(known.encode(["谁?"])[0])
        assert (len(units) > 1) == (len(known.encode([context])[0]) > room)
        assert all(len(unit.tokens) <= length for unit in units)
        held = [unit for unit in units if unit.targets is not None and not unit.targets[0].any()]
        assert held  # the whole answer is in one window at least
        kept = []
        for unit in units:
            assert (
                unit.targets is not None
                and len(unit.targets) == len(unit.places)
                and unit.targets.sum() == 2
            )
            start, end = (int(unit.targets[:, side].argmax()) for side in (0, 1))
            kept.append((-5.0, [(start, end, -1.0)] if start else []))
        (found,) = span.answers(examples, units, kept)
        assert (found["answer"], found["begin"], found["end"]) == (
            answer,
            context.index(answer),
            context.index(answer) + len(answer),
        )
        assert span.label_of(found) == answer


def test_units_have_question_and_window_and_marks_at_the_answer() -> None:
    known, context = vocabulary(), TEXTS[0]
    tokens, spans = known.spans(context)
    question = known.encode([QUESTION])[0]
    (unit,) = task().encode(
        [example(context, [("Marie Curie", context.index("Marie"))])], known, 400
    )
    assert unit.tokens == [known.cls, *question, known.sep, *tokens, known.sep]
    assert unit.second == len(question) + 2 and unit.places == [
        0,
        *range(unit.second, unit.second + len(tokens)),
    ]
    assert unit.targets is not None
    start, end = unit.targets[:, 0].tolist().index(1), unit.targets[:, 1].tolist().index(1)
    assert (spans[start - 1][0], spans[end - 1][1]) == (
        context.index("Marie"),
        context.index("Marie") + len("Marie Curie"),
    )


def test_what_has_no_answer_points_at_cls_and_what_has_no_label_at_nothing() -> None:
    known = vocabulary()
    labels: list[Any] = [
        [],
        None,
        [("not there at all", MISSING)],
        [("not there", MISSING), ("wohnte", TEXTS[0].index("wohnte"))],
    ]
    units = task().encode([example(TEXTS[0], label) for label in labels], known, 400)
    assert [unit.example for unit in units] == [0, 1, 2, 3]
    none, unlabelled, faulty, second = (unit.targets for unit in units)
    assert none is not None and none[0].tolist() == [1, 1] and none.sum() == 2
    assert unlabelled is None
    assert faulty is not None and (faulty == NONE).all()
    assert second is not None and second[0].tolist() == [0, 0] and second.sum() == 2


def test_questions_are_cut_and_empty_contexts_are_a_unit() -> None:
    known = vocabulary()
    (unit,) = task().encode([example("", None, "Café " * 200)], known, 32)
    assert len(unit.tokens) == 1 + 14 + 2 and unit.places == [0]
    assert task().answers([example("", None)], [unit], [(0.0, [])]) == [
        {"answer": "", "begin": 0, "end": 0, "score": 1.0, "answerable": False}
    ]


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
