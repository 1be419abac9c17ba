from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from tests.conftest import write_jsonl

from tasklm.errors import DataError
from tasklm.evaluate.reranking import (
    WEIGHTS,
    CandidateList,
    Errors,
    accuracy,
    best_weight,
    read_candidates,
)
from tasklm.evaluate.word_errors import edits


def test_lists_are_read_with_their_answers(tmp_path: Path) -> None:
    both = [{"text": "a", "score": -1}, {"text": "b", "score": 2.5}]
    rows = [
        {"id": "x", "candidates": both, "answer": 1},
        {"candidates": both, "answer": "a"},
        {"id": 3, "candidates": both},
    ]
    rows += [{"candidates": both, "answer": "c"}, {"candidates": both, "answer": None}]
    found = read_candidates(write_jsonl(tmp_path / "lists.jsonl", rows))
    assert found[0] == CandidateList("x", ["a", "b"], [-1.0, 2.5], frozenset([1]))
    assert [each.id for each in found] == ["x", 2, 3, 4, 5]  # the line where there is no id
    assert [each.right for each in found[1:]] == [frozenset([0]), None, frozenset(), None]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "not valid JSON"),
        ("{}", "'candidates' is not a non-empty list"),
        ('{"candidates": []}', "'candidates' is not a non-empty list"),
        ('{"candidates": [{"text": "a", "score": 1}, "b"]}', "candidate 1 has no 'text'"),
        ('{"candidates": [{"text": 5, "score": 1}]}', "candidate 0 has no 'text'"),
        ('{"candidates": [{"text": "a"}]}', "candidate 0 has no numeric 'score'"),
        ('{"candidates": [{"text": "a", "score": "1"}]}', "candidate 0 has no numeric 'score'"),
        ('{"candidates": [{"text": "a", "score": NaN}]}', "candidate 0 has no numeric 'score'"),
        (
            '{"candidates": [{"text": "a", "score": 1}], "answer": 1}',
            r"'answer' is 1, neither .* \(0 to 0\)",
        ),
        ('{"candidates": [{"text": "a", "score": 1}], "answer": true}', "'answer' is true"),
        ('{"candidates": [{"text": "a", "score": 1}], "answer": [0]}', r"'answer' is \[0\]"),
        ('{"candidates": [{"text": "a", "score": 1}], "reference": 3}', "'reference' is 3, not"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, problem: str) -> None:
    path = tmp_path / "lists.jsonl"
    path.write_text(
        json.dumps({"candidates": [{"text": "a", "score": 1}]}) + "\n" + line + "\n",
        encoding="utf-8",
    )
    with pytest.raises(DataError, match=f"lists.jsonl, line 2: .*{problem}"):
        read_candidates(path)


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"lists\.csv: .*JSON lines"):
        read_candidates(tmp_path / "lists.csv")
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(DataError, match="empty"):
        read_candidates(tmp_path / "empty.jsonl")


def test_the_largest_sum_is_chosen_and_the_first_on_a_tie() -> None:
    each = CandidateList(1, ["a", "b", "c"], [0.0, -1.0, -1.0], None)
    assert each.chosen([-10.0, -8.0, -8.0], 0.4) == 0
    assert each.chosen([-10.0, -8.0, -8.0], 0.6) == 1
    assert each.chosen([-10.0, -8.0, -7.0], 0.6) == 2


def test_the_weight_is_the_smallest_of_the_best() -> None:
    assert WEIGHTS[:2] == (0.05, 0.1) and WEIGHTS[-1] == 1.0 and len(WEIGHTS) == 20
    lists = [
        CandidateList(1, ["a", "b"], [0.0, -1.0], frozenset([1])),
        CandidateList(2, ["a", "b"], [0.0, -1.0], frozenset([0])),
    ]
    likelihoods = [
        [-10.0, -8.3],
        [-10.0, -8.9],
    ]  # the second overtakes where λ > 1/1.7 and λ > 1/1.1
    assert best_weight(lists, likelihoods, Path("dev")) == 0.6
    assert accuracy(lists, likelihoods, 0.05) == 0.5 and accuracy(lists, likelihoods, 0.95) == 0.5
    unknown = CandidateList(3, ["a"], [0.0], None)
    assert accuracy([unknown], [[0.0]], 1.0) is None
    assert best_weight([*lists, unknown], [*likelihoods, [0.0]], Path("dev")) == 0.6
    absent = CandidateList(
        4, ["a"], [0.0], frozenset()
    )  # an answer that nobody proposed is never found
    assert best_weight([*lists, absent], [*likelihoods, [0.0]], Path("dev")) == 0.6
    assert accuracy([*lists, absent], [*likelihoods, [0.0]], 0.6) == pytest.approx(2 / 3)
    with pytest.raises(
        DataError, match=r"dev\.jsonl: no list has a 'reference' or an 'answer'.*--weight"
    ):
        best_weight([unknown], [[0.0]], Path("dev.jsonl"))


def test_the_weight_is_that_of_a_plain_search() -> None:
    draw, chosen = random.Random(3), set()
    for _ in range(20):
        scores = [[draw.gauss(0, 3) for _ in range(4)] for _ in range(15)]
        likelihoods = [[draw.gauss(-20, 5) for _ in range(4)] for _ in range(15)]
        right = [draw.randrange(4) for _ in range(15)]
        lists = [
            CandidateList(i, list("abcd"), s, frozenset([r]))
            for i, (s, r) in enumerate(zip(scores, right, strict=True))
        ]
        hits = []
        for step in range(1, 21):
            sums = [
                [s + step / 20 * p for s, p in zip(*pair, strict=True)]
                for pair in zip(scores, likelihoods, strict=True)
            ]
            hits.append(sum(row.index(max(row)) == r for row, r in zip(sums, right, strict=True)))
        chosen.add(best_weight(lists, likelihoods, Path("dev")))
        assert best_weight(lists, likelihoods, Path("dev")) == (hits.index(max(hits)) + 1) / 20
    assert len(chosen) > 3


def plain_edits(one: list[str], other: list[str]) -> int:
    """By the table of all prefixes."""
    row = list(range(len(other) + 1))
    for i, left in enumerate(one, 1):
        before, row = row, [i]
        for j, right in enumerate(other, 1):
            row.append(min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (left != right)))
    return row[-1]


def test_edits_are_those_of_the_plain_table() -> None:
    draw = random.Random(5)
    for _ in range(400):
        one, other = (draw.choices("abcd", k=draw.randrange(draw.choice([3, 9, 90]))) for _ in "ab")
        assert edits(one, other) == plain_edits(one, other), (one, other)
    assert edits("kitten", "sitting") == 3 and edits([], []) == 0


def test_error_rates_are_over_all_words_of_the_references() -> None:
    lists = [
        CandidateList(1, ["a cat sat", "the cat sat"], [0.0, -1.0], None, "the cat sat"),
        CandidateList(2, ["no", "yes  it is", "yes is"], [0.0, -1.0, -4.0], None, "yes it is"),
        CandidateList(3, ["without"], [0.0], None),
    ]
    likelihoods = [[-9.0, -7.0], [-9.0, -9.0, -1.0], [-1.0]]
    counted = Errors.of(lists, "words")
    assert counted.edits == {0: [1, 0], 1: [3, 0, 1]} and counted.total == 6
    rates = counted.rates(likelihoods, 0.55)  # the second of the first, the third of the second
    assert (rates.chosen, rates.lists) == (pytest.approx(100 / 6), 2)
    assert (rates.by_score, rates.least) == (pytest.approx(400 / 6), 0.0)
    characters = Errors.of(lists, "characters")
    assert characters.total == 9 + 7 and characters.edits[0] == [3, 0]
    assert best_weight(lists, likelihoods, Path("dev")) == 0.55  # smaller ones keep "a cat sat"
    assert Errors.of(lists[2:], "words").total == 0


def test_the_weight_of_the_least_error_rate_is_that_of_a_plain_search() -> None:
    draw = random.Random(8)
    for _ in range(10):
        lists, likelihoods = [], []
        for number in range(12):
            texts = [" ".join(draw.choices(["a", "b", "c"], k=4)) for _ in range(5)]
            scores = [draw.gauss(0, 3) for _ in texts]
            lists.append(CandidateList(number, texts, scores, None, draw.choice(texts)))
            likelihoods.append([draw.gauss(-20, 5) for _ in texts])
        wrong = []
        for step in range(1, 21):
            total = 0
            for each, own in zip(lists, likelihoods, strict=True):
                sums = [s + step / 20 * p for s, p in zip(each.scores, own, strict=True)]
                assert each.reference is not None
                chosen = each.texts[sums.index(max(sums))]
                total += plain_edits(chosen.split(), each.reference.split())
            wrong.append(total)
        assert best_weight(lists, likelihoods, Path("dev")) == (wrong.index(min(wrong)) + 1) / 20
