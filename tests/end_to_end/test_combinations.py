"""A few combinations of kinds and options; benchmarks/combinations.py tries as many as wanted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.combinations import CASES, MARKED, Combination, combination, ended

KINDS = {case.kind: case for case in CASES}


@pytest.mark.parametrize(
    "one",
    [
        Combination(KINDS["classify"], MARKED, {"finetune.soup": "true", "finetune.seeds": "2"}),
        Combination(KINDS["tag"], "crf", {"model.encoder": "modern", "finetune.average": "0.9"}),
    ],
    ids=str,
)
def test_a_combination_is_trained_used_and_exported(one: Combination, tmp_path: Path) -> None:
    assert ended(one, tmp_path) == "done"


def test_combinations_are_drawn_alike_and_differ() -> None:
    drawn = [combination(1, number) for number in range(40)]
    assert drawn == [combination(1, number) for number in range(40)]
    assert {one.case.kind for one in drawn} == set(KINDS) and len(set(map(str, drawn))) == 40
