from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from tests.conftest import write_jsonl

from tasklm.errors import DataError
from tasklm.evaluate.reranking import WEIGHTS, CandidateList, accuracy, best_weight, read_candidates


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
    assert best_weight(lists, likelihoods, Path("dev")) == (0.6, 1.0)
    assert accuracy(lists, likelihoods, 0.05) == 0.5 and accuracy(lists, likelihoods, 0.95) == 0.5
    unknown = CandidateList(3, ["a"], [0.0], None)
    assert accuracy([unknown], [[0.0]], 1.0) is None
    assert best_weight([*lists, unknown], [*likelihoods, [0.0]], Path("dev")) == (0.6, 1.0)
    absent = CandidateList(
        4, ["a"], [0.0], frozenset()
    )  # an answer that nobody proposed is never found
    assert best_weight([*lists, absent], [*likelihoods, [0.0]], Path("dev")) == (
        0.6,
        pytest.approx(2 / 3),
    )
    with pytest.raises(DataError, match=r"dev\.jsonl: no list has an 'answer'.*--weight"):
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
        chosen.add(best_weight(lists, likelihoods, Path("dev"))[0])
        assert best_weight(lists, likelihoods, Path("dev")) == (
            (hits.index(max(hits)) + 1) / 20,
            max(hits) / 15,
        )
    assert len(chosen) > 3
