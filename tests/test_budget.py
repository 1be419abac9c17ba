from __future__ import annotations

import pytest

from tasklm import budget
from tasklm.budget import EncoderCost


def test_tlm_flops_are_the_published_ones() -> None:
    """TLM small: 109M parameters, 150K steps of 256 × 128 tokens: 3.2e18 by the paper's formula (its average is 2.74e18)."""
    cost = EncoderCost(12, 768, 3072, 30_522, 512)
    assert cost.six_nd(150_000 * 256 * 128) == pytest.approx(3.2e18, rel=0.02)


def test_exact_flops_by_hand() -> None:
    cost = EncoderCost(layers=1, width=2, feedforward=8, vocabulary=10, positions=4)
    # per token: QKV and output 4·(2·2·2) = 32, scores and mixing 2·(2·3·2) = 24, feed-forward 2·(2·2·8) = 64
    assert cost.forward_per_token(3) == 32 + 24 + 64
    assert cost.forward_per_target() == 2 * 2 * 2 + 2 * 2 * 10
    assert cost.training(5, 2, 3) == 3 * (5 * 120 + 2 * 48)


def test_k_follows_the_papers_rule() -> None:
    assert [budget.default_k(n) for n in (500, 4_999, 20_000, 115_000)] == [5000, 5000, 500, 50]


def test_the_size_grows_with_the_budget_and_is_never_starved() -> None:
    sizes = {"s": EncoderCost(2, 64, 256, 0, 0), "m": EncoderCost(4, 128, 512, 0, 0), "l": EncoderCost(8, 256, 1024, 0, 0)}
    chosen = []
    for flops in (1e9, 1e12, 1e14, 1e18):
        size, tokens = budget.choose_size(list(sizes), sizes.__getitem__, lambda name, f=flops: f / sizes[name].training(1, 0, 64))
        chosen.append(size)
        assert size == "s" or tokens >= budget.TOKENS_PER_PARAMETER * sizes[size].hidden_parameters
    assert chosen == sorted(chosen, key=list(sizes).index) and chosen[0] == "s" and chosen[-1] == "l"


def test_rho1_gives_the_wanted_passes_over_the_task() -> None:
    rho1 = budget.rho1_for(steps=3000, batch=64, examples=1688)
    passes = 3000 / (rho1 + 1) * 64 / 1688
    assert passes == pytest.approx(budget.TASK_EPOCHS, rel=0.1)
    assert budget.rho1_for(10, 64, 100_000) == 1 and budget.rho1_for(10**7, 256, 500) == 999


def test_batches_leave_enough_steps() -> None:
    for tokens in (1e6, 3e7, 1e9, 1e11):
        batch = budget.batch_for(tokens, 128)
        assert 16 <= batch <= 256 and batch & (batch - 1) == 0
        assert batch == 16 or tokens / (batch * 128) >= budget.STEPS_WANTED / 2
