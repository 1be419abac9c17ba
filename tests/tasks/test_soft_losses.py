"""Losses against teachers: mixed with those against labels they are the loss against the mixture."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tasklm.tasks.base import NONE
from tasklm.tasks.choice import Choice
from tasklm.tasks.classify import Classify
from tasklm.tasks.multilabel import Multilabel
from tasklm.tasks.regress import Regress
from tasklm.tasks.tag import Tag

SHARE = 0.3  # λ, of the labels


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("marks", [(), ("#", "@")])
def test_classes_learn_the_mixed_distribution(marks: tuple[str, ...]) -> None:
    task = Classify(["a", "b", "c"], marks)
    reads = 1 + len(marks)
    outputs, taught = drawn(4, 1, 3), drawn(4, 1, 3, seed=1)
    targets = torch.tensor([[2] * reads, [0] * reads, [1] * reads, [NONE] * reads])
    mixed = SHARE * functional.one_hot(targets[:3, 0], 3) + (1 - SHARE) * taught[:3, 0].softmax(-1)
    expected = functional.cross_entropy(outputs[:3, 0], mixed, reduction="sum")
    ours = SHARE * task.loss(outputs, targets)
    ours += (1 - SHARE) * task.taught_loss(outputs, taught, targets)
    assert float(ours) == pytest.approx(float(expected), rel=1e-5)


def test_words_learn_the_mixed_distribution() -> None:
    task = Tag(["B", "I", "O"], "IOB2")
    outputs, taught = drawn(2, 4, 3), drawn(2, 4, 3, seed=1)
    targets = torch.tensor([[0, 1, NONE, NONE], [2, 2, 1, 0]])
    there = targets != NONE
    mixed = SHARE * functional.one_hot(targets[there], 3) + (1 - SHARE) * taught[there].softmax(-1)
    expected = functional.cross_entropy(outputs[there], mixed, reduction="sum")
    ours = SHARE * task.loss(outputs, targets)
    ours += (1 - SHARE) * task.taught_loss(outputs, taught, targets)
    assert float(ours) == pytest.approx(float(expected), rel=1e-5)


def test_options_learn_the_mixed_distribution_of_those_that_are_there() -> None:
    task = Choice(3)
    outputs, taught = drawn(9, 1, 1), drawn(9, 1, 1, seed=1)
    targets = torch.full((9, 1, 2), NONE)
    targets[:3, 0, 1], targets[3:6, 0, 1] = 3, 2
    targets[0, 0, 0], targets[3, 0, 0] = 1, 0  # the last three rows are padding
    scores, teacher = outputs.view(3, 3), taught.view(3, 3)
    expected = 0.0
    for row, (right, options) in enumerate([(1, 3), (0, 2)]):
        shares = (1 - SHARE) * teacher[row, :options].softmax(-1)
        shares[right] += SHARE
        expected -= float((shares * scores[row, :options].log_softmax(-1)).sum())
    ours = SHARE * task.loss(outputs, targets)
    ours += (1 - SHARE) * task.taught_loss(outputs, taught, targets)
    assert float(ours) == pytest.approx(expected, rel=1e-5)


def test_label_sets_learn_the_mixed_probabilities() -> None:
    task = Multilabel(["a", "b"], [0.5, 0.5])
    outputs, taught = drawn(3, 1, 2), drawn(3, 1, 2, seed=1)
    targets = torch.tensor([[[1, 0]], [[1, 1]], [[NONE, NONE]]])
    mixed = SHARE * targets[:2].float() + (1 - SHARE) * taught[:2].sigmoid()
    expected = functional.binary_cross_entropy_with_logits(outputs[:2], mixed, reduction="sum")
    ours = SHARE * task.loss(outputs, targets)
    ours += (1 - SHARE) * task.taught_loss(outputs, taught, targets)
    assert float(ours) == pytest.approx(float(expected), rel=1e-5)


def test_numbers_move_towards_the_mixed_number() -> None:
    task = Regress(0.0, 5.0)
    outputs, taught = drawn(3, 1, 1).requires_grad_(), drawn(3, 1, 1, seed=1)
    targets = torch.tensor([[0.2], [0.9], [float(NONE)]])
    mixed = SHARE * targets[:2, 0] + (1 - SHARE) * taught[:2, 0, 0].sigmoid()
    expected = ((outputs[:2, 0, 0].sigmoid() - mixed) ** 2).sum()
    ours = SHARE * task.loss(outputs, targets)
    ours = ours + (1 - SHARE) * task.taught_loss(outputs, taught, targets)
    # the two differ by what does not depend on the outputs: the gradients are the same
    ours_slope, expected_slope = (
        torch.autograd.grad(loss, outputs)[0].numpy() for loss in (ours, expected)
    )
    np.testing.assert_allclose(ours_slope, expected_slope, rtol=1e-5, atol=1e-7)


def likelihoods(potentials: np.ndarray) -> dict[tuple[int, ...], float]:
    """The log-likelihood of each sequence of tags, by the definition of a CRF."""
    places, tags, _ = potentials.shape
    scores = {}
    for sequence in product(range(tags), repeat=places):
        steps = zip(range(places), (0, *sequence), sequence, strict=False)
        scores[sequence] = sum(float(potentials[step]) for step in steps)
    total = np.logaddexp.reduce(list(scores.values()))
    return {sequence: score - total for sequence, score in scores.items()}


def test_a_crf_learns_from_all_sequences_that_teachers_may_mean() -> None:
    task = Tag(["B", "I", "O"], "IOB2", crf=True)
    potentials, taught = 2 * drawn(2, 4, 3, 3), drawn(2, 4, 3, seed=1)
    targets = torch.tensor([[0, 1, 1, 2], [2, 0, NONE, NONE]])
    expected = 0.0
    for row, words in ((0, 4), (1, 2)):
        chances = taught[row, :words].double().softmax(-1).numpy()
        for sequence, log in likelihoods(potentials[row, :words].double().numpy()).items():
            expected -= float(np.prod(chances[range(words), sequence])) * log
    ours = task.taught_loss(potentials, taught, targets)
    assert float(ours) == pytest.approx(expected, rel=1e-5)


def test_a_crf_teaches_the_probability_of_each_tag() -> None:
    task = Tag(["B", "I", "O"], "IOB2", crf=True)
    potentials = 2 * drawn(4, 3, 3).double().numpy()
    chances = np.zeros((4, 3))
    for sequence, log in likelihoods(potentials).items():
        chances[range(4), sequence] += np.exp(log)
    np.testing.assert_allclose(np.exp(task.lesson(potentials)), chances, rtol=1e-9)
