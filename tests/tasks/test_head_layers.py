"""The head of one token, with and without the norm of ModernBERT's, and which
encoders ask for it.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tasklm.encoders.base import ENCODERS
from tasklm.tasks.base import TASKS
from tasklm.tasks.heads.layers import TokenHead


def by_hand(head: Any, states: Tensor, normed: bool) -> Tensor:
    inner = functional.gelu(states @ head.dense.weight.T + head.dense.bias)
    if normed:
        centred = inner - inner.mean(-1, keepdim=True)
        inner = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * head.norm.weight
    return inner @ head.out.weight.T + head.out.bias


@pytest.mark.parametrize("normed", [False, True])
def test_what_it_computes(normed: bool) -> None:
    torch.manual_seed(0)
    head = TokenHead(16, 3, 0.0, normed).double()
    states = torch.randn(2, 5, 16, dtype=torch.float64)
    torch.nn.init.normal_(head.out.bias)
    if normed:
        torch.nn.init.normal_(head.norm.weight)  # type: ignore[arg-type]
    torch.testing.assert_close(head(states), by_hand(head, states, normed), atol=1e-12, rtol=0)


def test_the_norm_is_the_only_difference() -> None:
    """It draws nothing: the other weights of a seed are the same."""
    plain, normed = (_drawn(some).state_dict() for some in (False, True))
    assert set(plain) == {"dense.weight", "dense.bias", "out.weight", "out.bias"} and set(
        normed
    ) - set(plain) == {"norm.weight"}
    assert all(torch.equal(plain[name], normed[name]) for name in plain)


def _drawn(normed: bool) -> TokenHead:
    torch.manual_seed(1)
    return TokenHead(16, 3, 0.1, normed)


def test_which_encoders_ask_for_it() -> None:
    asked = {
        name: ENCODERS.get(name).normed_heads
        for name in ("bert", "roberta", "albert", "modern", "modernbert")
    }
    assert asked == {
        "bert": False,
        "roberta": False,
        "albert": False,
        "modern": True,
        "modernbert": True,
    }


@pytest.mark.parametrize(
    ("described", "normed_head"),
    [
        ({"kind": "classify", "labels": ["a", "b"]}, True),
        ({"kind": "multilabel", "labels": ["a", "b"], "thresholds": []}, True),
        ({"kind": "regress", "low": 0.0, "high": 1.0}, True),
        ({"kind": "choice", "options": 3}, True),
        (
            {
                "kind": "tag",
                "labels": ["a", "b"],
                "scheme": "plain",
                "crf": False,
                "characters": False,
            },
            True,
        ),
        (
            {
                "kind": "tag",
                "labels": ["a", "b"],
                "scheme": "plain",
                "crf": True,
                "characters": False,
            },
            False,
        ),
        (
            {
                "kind": "span",
                "stride": 8,
                "answer_tokens": 5,
                "unanswerable": False,
                "threshold": 0.0,
            },
            False,
        ),
    ],
)
def test_which_kinds_have_it(described: dict[str, Any], normed_head: bool) -> None:
    """Those that transformers has a class for; the head of a kind without the norm is as it was."""
    task = TASKS.get(described["kind"]).from_dict(described)
    plain, asked = task.head(16, 0.0), task.head(16, 0.0, normed=True)
    assert (
        "norm.weight" not in plain.state_dict()
        and ("norm.weight" in asked.state_dict()) == normed_head
    )
    assert (task.elsewhere is not None) == normed_head
    assert plain(torch.randn(3, 2, 16)).shape == asked(torch.randn(3, 2, 16)).shape
