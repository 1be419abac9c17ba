"""The plan of a run by FLOPs, which takes no measurement of speed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tasklm.budget import Plan
from tasklm.planning import _plan
from tasklm.recipe import from_dict, with_overrides


def planned(**keys: Any) -> Plan:
    overrides = {name.replace("__", "."): value for name, value in keys.items()}
    run = SimpleNamespace(recipe=from_dict(with_overrides({}, overrides)))
    task = SimpleNamespace(splits=SimpleNamespace(train=[None] * 1500))
    return _plan(cast(Any, run), cast(Any, task), None)


@pytest.mark.parametrize(
    ("flops", "size", "random"), [(1e12, "tiny", "tiny"), (3e13, "mini", "tiny"), (2e14, "small", "mini"), (1e17, "medium", "medium")]
)
def test_models_that_begin_with_counts_are_larger(flops: float, size: str, random: str) -> None:
    counted = planned(budget__flops=flops)
    assert counted.size == size
    assert any("reads 2 tokens per weight" in reason for reason in counted.reasons) == (size != "medium")
    assert planned(budget__flops=flops, train__embeddings="random", train__attention="random").size == random
    assert planned(budget__flops=flops, train__objective="electra").size == random


def test_a_size_that_is_asked_for_is_taken() -> None:
    assert planned(budget__flops=1e12, model__size="base").size == "base"


def test_a_size_that_is_too_large_may_lack_what_the_recipe_asks_for() -> None:
    assert planned(budget__flops=3e13, train__attention="neighbours").size == "mini"  # medium, which is not affordable, cannot begin so
