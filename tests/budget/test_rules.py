from __future__ import annotations

import pytest

from tasklm.budget import rules
from tasklm.budget.costs import EncoderCost


def test_k_follows_the_papers_rule() -> None:
    assert [rules.default_k(n) for n in (500, 4_999, 20_000, 115_000)] == [5000, 5000, 500, 50]


def test_the_size_grows_with_the_budget_and_is_never_starved() -> None:
    sizes = {
        "s": EncoderCost(2, 64, 256, 0, 0),
        "m": EncoderCost(4, 128, 512, 0, 0),
        "l": EncoderCost(8, 256, 1024, 0, 0),
    }
    enough = {name: 8 * cost.hidden_parameters for name, cost in sizes.items()}
    chosen = []
    for flops in (1e9, 1e12, 1e14, 1e18):
        size, tokens = rules.choose_size(
            list(sizes),
            enough.__getitem__,
            lambda name, f=flops: f / sizes[name].training(1, 0, 64),
        )
        chosen.append(size)
        assert size == "s" or tokens >= enough[size]
    assert (
        chosen == sorted(chosen, key=list(sizes).index) and chosen[0] == "s" and chosen[-1] == "l"
    )


def test_rho1_gives_the_wanted_passes_over_the_task() -> None:
    rho1 = rules.rho1_for(steps=3000, batch=64, examples=1688)
    passes = 3000 / (rho1 + 1) * 64 / 1688
    assert passes == pytest.approx(rules.TASK_EPOCHS, rel=0.1)
    assert rules.rho1_for(10, 64, 100_000) == 1 and rules.rho1_for(10**7, 256, 500) == 999


def test_batches_leave_enough_steps() -> None:
    for tokens in (1e6, 3e7, 1e9, 1e11):
        batch = rules.batch_for(tokens, 128)
        assert 16 <= batch <= 256 and batch & (batch - 1) == 0
        assert batch == 16 or tokens / (batch * 128) >= rules.STEPS_WANTED / 2


@pytest.mark.parametrize(("internal", "external"), [(3.0, 10.0), (25.0, 10.0), (10.0, 10.0)])
@pytest.mark.parametrize("rho1", [None, 0, 1, 4, 37])
def test_steps_spend_the_flops(internal: float, external: float, rho1: int | None) -> None:
    external = external if rho1 != 0 else 0.0
    steps, share = rules.steps_for_flops(40_000.0, internal, external, rho1, batch=16, examples=300)
    spent = sum(internal if step % (share + 1) == 0 else external for step in range(steps))
    assert spent == pytest.approx(40_000, abs=(share + 1) * max(internal, external))
    assert share == rho1 or (rho1 is None and abs(share - rules.rho1_for(steps, 16, 300)) <= 1)


def test_rates_of_stage_1_fall_with_the_width_slower_under_muon() -> None:
    assert [rules.stage1_rate(width, "muon") for width in (64, 256, 1024)] == [2e-3, 2e-3, 1e-3]
    assert [rules.stage1_rate(width, "adamw") for width in (64, 192, 768)] == [2e-3, 2e-3, 5e-4]


def test_rates_of_a_recurrent_encoder_are_higher() -> None:
    rates = [rules.stage2_rate(width, recurrent=True) for width in (64, 128, 512)]
    assert rates == [4e-3, 4e-3, 2e-3]
    assert rules.stage2_rate(512, "sgd", recurrent=True) == rules.stage2_rate(512, "sgd") == 0.5


def test_small_models_take_few_examples_a_step_where_there_are_few() -> None:
    assert [
        rules.stage2_batch(examples, shallow)
        for examples, shallow in [(1999, True), (2000, True), (1999, False)]
    ] == [8, 32, 32]
    assert (
        rules.epochs_for(4800, 32) == 10 and rules.epochs_for(4800, 8) == 5
    )  # twice the steps of a quarter of the examples
    assert rules.epochs_for(10, 32) == 30 and rules.epochs_for(10**6, 32) == 3
