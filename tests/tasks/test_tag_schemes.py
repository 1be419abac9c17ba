from __future__ import annotations

from itertools import product

import pytest

from tasklm.tasks.heads.tag_schemes import (
    PLAIN,
    SCHEMES,
    converted,
    faults,
    from_spans,
    scheme_of,
    spans,
)

BIO = ["B-PER", "I-PER", "O", "B-LOC", "B-LOC", "O", "O", "B-ORG", "I-ORG", "I-ORG"]
IOB1 = ["I-PER", "I-PER", "O", "I-LOC", "B-LOC", "O", "O", "I-ORG", "I-ORG", "I-ORG"]
BIOES = ["B-PER", "E-PER", "O", "S-LOC", "S-LOC", "O", "O", "B-ORG", "I-ORG", "E-ORG"]
SPANS = [("PER", 0, 2), ("LOC", 3, 4), ("LOC", 4, 5), ("ORG", 7, 10)]
WRITTEN = {"BIO": BIO, "IOB1": IOB1, "BIOES": BIOES}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_schemes_by_hand(scheme: str) -> None:
    tags = WRITTEN[scheme]
    assert scheme_of([["O"], tags]) == scheme
    assert spans(tags) == SPANS
    assert from_spans(SPANS, 10, scheme) == tags
    assert faults(tags, scheme) == []
    for other in SCHEMES:
        assert converted(tags, other) == WRITTEN[other]


def every_span_set(words: int) -> list[list[tuple[str, int, int]]]:
    """All ways to lay spans of two types over some words."""
    if words <= 0:
        return [[]]
    found = every_span_set(words - 1)
    for size, kind in product(range(1, words + 1), "XY"):
        found += [[*rest, (kind, words - size, words)] for rest in every_span_set(words - size)]
    return found


def test_all_span_sets_of_four_words_come_back() -> None:
    cases = every_span_set(4)
    assert len(cases) == len(set(map(str, cases))) > 100
    for case in cases:
        for scheme in SCHEMES:
            tags = from_spans(case, 4, scheme)
            assert spans(tags) == case
            assert faults(tags, scheme) == []


@pytest.mark.parametrize("scheme", SCHEMES)
def test_faults_are_just_the_sequences_that_no_spans_are_written_as(scheme: str) -> None:
    letters = "BIES" if scheme == "BIOES" else "BI"
    tags = ["O", *(f"{letter}-{kind}" for letter in letters for kind in "XY")]
    legal = {tuple(from_spans(case, 3, scheme)) for case in every_span_set(3)}
    for sequence in product(tags, repeat=3):
        assert (faults(sequence, scheme) == []) == (sequence in legal)


def test_faults_by_hand() -> None:
    assert faults(["O", "I-X"], "BIO") == [(1, "I-X after O")]
    assert faults(["I-X", "B-X", "I-Y"], "BIO") == [
        (0, "I-X at the beginning"),
        (2, "I-Y after B-X"),
    ]
    assert faults(["O", "E-X", "B-X"], "BIOES") == [
        (1, "E-X after O"),
        (2, "B-X is not closed by E-X"),
    ]
    assert faults(["B-X"], "IOB1") == [(0, "B-X does not follow a span of its type")]
    assert faults(["NOUN", "B-X"], PLAIN) == []


def test_spans_are_repaired_as_conlleval_repairs_them() -> None:
    # cases of conlleval's rules startOfChunk and endOfChunk
    assert spans(["O", "I-X", "I-X", "O"]) == [("X", 1, 3)]
    assert spans(["B-X", "I-Y", "I-Y"]) == [("X", 0, 1), ("Y", 1, 3)]
    assert spans(["I-X", "B-X", "I-X"]) == [("X", 0, 1), ("X", 1, 3)]
    assert spans(["E-X", "E-X"]) == [("X", 0, 1), ("X", 1, 2)]
    assert spans(["B-X", "E-X", "I-X"]) == [("X", 0, 2), ("X", 2, 3)]
    assert spans(["S-X", "I-X"]) == [("X", 0, 1), ("X", 1, 2)]
    assert spans([]) == [] and spans(["O"]) == []
    assert spans(["B", "I", "O", "B"]) == [("", 0, 2), ("", 3, 4)]
    assert spans(["B-X", "M-X", "L-X", "U-Y"]) == [("X", 0, 3), ("Y", 3, 4)]


def test_schemes_are_told_apart() -> None:
    assert scheme_of([["NOUN", "VERB", "X"]]) == PLAIN
    assert scheme_of([["O", "O"]]) == PLAIN
    assert scheme_of([["0", "3"]]) == PLAIN
    assert scheme_of([["-LRB-", "NN", "B-X"]]) == PLAIN
    assert scheme_of([["S", "V", "O"], ["S", "O"]]) == PLAIN  # subject, verb, object
    assert scheme_of([["S", "O"]]) == PLAIN
    assert scheme_of([["B", "I", "O"]]) == "BIO"
    assert scheme_of([["B-X", "O"]]) == "BIO"
    assert scheme_of([BIO, BIO, ["O", "I-PER"]]) == "BIO"  # one fault
    assert scheme_of([["I-X", "B-X"]]) == "IOB1"
    assert scheme_of([["B-a-b", "I-a-b"]]) == "BIO" and spans(["B-a-b", "I-a-b"]) == [("a-b", 0, 2)]
