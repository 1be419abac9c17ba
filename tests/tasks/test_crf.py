from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from tasklm.tasks.base import NONE
from tasklm.tasks.heads.crf import CrfHead, _loss_and_gradient, negative_log_likelihood
from tasklm.tasks.heads.tag_sequences import best_tags

TAGS = 3


def score(potentials: np.ndarray, tags: tuple[int, ...]) -> float:
    before = 0
    total = 0.0
    for place, tag in enumerate(tags):
        total += float(potentials[place, before, tag])
        before = tag
    return total


def all_scores(potentials: np.ndarray) -> dict[tuple[int, ...], float]:
    return {
        tags: score(potentials, tags)
        for tags in product(range(potentials.shape[1]), repeat=len(potentials))
    }


def random_potentials(rows: int, places: int, seed: int = 1) -> Tensor:
    return torch.randn(rows, places, TAGS, TAGS, generator=torch.Generator().manual_seed(seed)) * 2


@pytest.mark.parametrize("places", [1, 2, 5])
def test_likelihood_is_that_of_all_sequences(places: int) -> None:
    potentials = random_potentials(4, places)
    targets = torch.randint(0, TAGS, (4, places), generator=torch.Generator().manual_seed(2))
    expected = 0.0
    for row in range(4):
        scores = all_scores(potentials[row].double().numpy())
        expected += (
            np.logaddexp.reduce(list(scores.values())) - scores[tuple(targets[row].tolist())]
        )
    assert float(negative_log_likelihood(potentials, targets)) == pytest.approx(expected, rel=1e-5)


def test_likelihoods_of_all_sequences_sum_to_one() -> None:
    potentials = random_potentials(1, 4)
    losses = [
        negative_log_likelihood(potentials, torch.tensor([tags]))
        for tags in product(range(TAGS), repeat=4)
    ]
    assert float(torch.stack(losses).neg().exp().sum()) == pytest.approx(1.0, rel=1e-5)


def test_padding_changes_nothing() -> None:
    potentials = random_potentials(3, 7)
    targets = torch.tensor([[0, 2, 1, 1, 0, 2, 1], [2, 1, 0, NONE, NONE, NONE, NONE], [NONE] * 7])
    potentials[1, 3:], potentials[2] = 1e4, -1e4
    potentials.requires_grad_()
    loss = negative_log_likelihood(potentials, targets)
    loss.backward()
    alone = negative_log_likelihood(potentials[:1], targets[:1]) + negative_log_likelihood(
        potentials[1:2, :3], targets[1:2, :3]
    )
    torch.testing.assert_close(loss, alone)
    assert potentials.grad is not None
    assert not potentials.grad[1, 3:].any() and not potentials.grad[2].any()
    assert potentials.grad[0].any(1).all() and potentials.grad[1, :3].any(1).all()


def test_places_without_a_target_are_skipped_wherever_they_stand() -> None:
    potentials = random_potentials(1, 6)
    for there in product([False, True], repeat=6):
        targets = torch.tensor(
            [[tag if kept else NONE for tag, kept in zip([2, 1, 0, 2, 2, 1], there, strict=True)]]
        )
        kept = torch.tensor(there)
        found = negative_log_likelihood(potentials, targets)
        if any(there):
            torch.testing.assert_close(
                found, negative_log_likelihood(potentials[:, kept], targets[:, kept])
            )
            scores = all_scores(potentials[0, kept].double().numpy())
            expected = (
                np.logaddexp.reduce(list(scores.values()))
                - scores[tuple(targets[0, kept].tolist())]
            )
            assert float(found) == pytest.approx(expected, rel=1e-5)
        else:
            assert found == 0


def test_gradient_is_probability_minus_gold() -> None:
    """The gradient of the loss by a potential is the share of its step in all sequences, less 1
    where gold takes it.
    """
    potentials = random_potentials(1, 4).requires_grad_()
    targets = torch.tensor([[1, 0, 2, 2]])
    negative_log_likelihood(potentials, targets).backward()
    expected = np.zeros((4, TAGS, TAGS))
    scores = all_scores(potentials[0].detach().double().numpy())
    total = np.logaddexp.reduce(list(scores.values()))
    for tags, value in scores.items():
        for place, tag in enumerate(tags):
            expected[place, tags[place - 1] if place else 0, tag] += np.exp(value - total)
    for place, (before, tag) in enumerate(zip([0, 1, 0, 2], [1, 0, 2, 2], strict=True)):
        expected[place, before, tag] -= 1
    assert potentials.grad is not None
    np.testing.assert_allclose(potentials.grad[0].numpy(), expected, atol=1e-5)


def test_best_tags_are_those_of_brute_force() -> None:
    for seed in range(50):
        potentials = random_potentials(1, 1 + seed % 6, seed)[0].numpy()
        scores = all_scores(potentials)
        assert scores[tuple(best_tags(potentials).tolist())] == pytest.approx(
            max(scores.values()), abs=1e-5
        )
    assert best_tags(np.zeros((0, TAGS, TAGS))).tolist() == []


def test_head_adds_emission_and_transition() -> None:
    torch.manual_seed(0)
    head = CrfHead(8, TAGS, 0.0)
    with torch.no_grad():
        head.start.normal_()
        head.transition.normal_()
    states = torch.randn(2, 4, 8)
    found = head(states)
    assert found.shape == (2, 4, TAGS, TAGS)
    emissions = states @ head.out.weight.T + head.out.bias
    for row, place, i, j in product(range(2), range(4), range(TAGS), range(TAGS)):
        step = head.transition[i, j] if place else head.start[j]
        if place or i == 0:
            torch.testing.assert_close(found[row, place, i, j], emissions[row, place, j] + step)


def test_long_rows_with_large_scores_stay_finite_in_half_precision() -> None:
    head = CrfHead(8, TAGS, 0.0).bfloat16()
    potentials = head(
        torch.randn(2, 200, 8, dtype=torch.bfloat16, generator=torch.Generator().manual_seed(0))
        * 1000
    )
    loss = negative_log_likelihood(potentials, torch.zeros(2, 200, dtype=torch.long))
    loss.backward()
    assert loss.dtype == torch.float32 and loss.isfinite() and loss > 0
    assert all(
        weight.grad is not None and weight.grad.isfinite().all() for weight in head.parameters()
    )


def test_it_is_one_operation_of_a_compiled_graph() -> None:
    """`aot_eager` traces forwards and backwards as `torch.compile` does, but needs no compiler."""
    targets = torch.tensor([[0, 1, 2, 1, 0], [1, 1, NONE, NONE, NONE]])
    found = []
    for function in (
        negative_log_likelihood,
        torch.compile(negative_log_likelihood, fullgraph=True, dynamic=False, backend="aot_eager"),
    ):
        potentials = random_potentials(2, 5).requires_grad_()
        loss = function(potentials, targets)
        (3 * loss).backward()
        found.append((loss.detach(), potentials.grad))
    torch.testing.assert_close(found[1], found[0])
    torch.library.opcheck(_loss_and_gradient, (random_potentials(2, 5).requires_grad_(), targets))


def test_gradient_is_that_of_the_automatic_one() -> None:
    """Against the forward algorithm written plainly, differentiated by torch, with places left out
    in the middle.
    """
    targets = torch.tensor([[0, 1, NONE, 2, 1, 0], [NONE, 1, 1, NONE, NONE, NONE], [NONE] * 6])
    potentials = random_potentials(3, 6).double().requires_grad_()
    plain = potentials.new_zeros(())
    for row in range(3):
        alpha, before = torch.tensor([0.0, -torch.inf, -torch.inf], dtype=torch.float64), 0
        for place in range(6):
            if (tag := int(targets[row, place])) != NONE:
                alpha = torch.logsumexp(alpha[:, None] + potentials[row, place], 0)
                plain, before = plain - potentials[row, place, before, tag], tag
        plain = plain + torch.logsumexp(alpha, 0)
    (expected,) = torch.autograd.grad(plain, potentials)
    loss = negative_log_likelihood(potentials, targets)
    (found,) = torch.autograd.grad(loss, potentials)
    torch.testing.assert_close(loss.double(), plain, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
