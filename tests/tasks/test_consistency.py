"""Divergences from a model's own answers, against SciPy and sums by hand; auxiliary modules."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import softmax
from scipy.stats import entropy

from tasklm.errors import RecipeError
from tasklm.recipe.data_sections import Kind
from tasklm.tasks.base import TASKS
from tasklm.tasks.choice import Choice
from tasklm.tasks.classify import Classify
from tasklm.tasks.consistency.modules import PairModule
from tasklm.tasks.consistency.texts import TextConsistency
from tasklm.tasks.consistency.together import JointConsistency
from tasklm.tasks.consistency.trees import TreeConsistency
from tasklm.tasks.consistency.words import TagConsistency
from tasklm.tasks.heads.biaffine import BiaffineHead
from tasklm.tasks.heads.tag_sequences import log_marginals
from tasklm.tasks.multilabel import Multilabel
from tasklm.tasks.parse import Parse
from tasklm.tasks.several import Several
from tasklm.tasks.span import Span
from tasklm.tasks.tag import Tag

HOLDS = torch.tensor([[False, True, True], [True, False, False]])


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return 2 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def by_scipy(targets: torch.Tensor, outputs: torch.Tensor) -> float:
    """KL(p ‖ q) of two vectors of logits."""
    p, q = (softmax(one.detach().double().numpy()) for one in (targets, outputs))
    return float(entropy(p, q))


@pytest.mark.parametrize("task", [TagConsistency(5), TextConsistency(5)])
def test_divergence_of_classes_is_scipy_s(task: Any) -> None:
    outputs, wanted = drawn(2, 3, 5), drawn(2, 3, 5, seed=1)
    targets = task.targets(wanted, HOLDS)
    expected = sum(by_scipy(wanted[i, j], outputs[i, j]) for i, j in HOLDS.nonzero().tolist())
    for loss in (task.divergence, lambda *given: task.auxiliary_divergence("full", *given)):
        assert float(loss(outputs, targets, HOLDS)) == pytest.approx(expected, rel=1e-5)
    assert float(task.divergence(wanted, targets, HOLDS)) == pytest.approx(0.0, abs=1e-6)


def test_divergence_of_label_sets_is_that_of_each_label() -> None:
    task = TextConsistency(4, independent=True)
    outputs, wanted = drawn(2, 3, 4), drawn(2, 3, 4, seed=1)
    expected = 0.0
    for i, j in HOLDS.nonzero().tolist():
        for label in range(4):
            pair = [torch.stack([one[i, j, label], torch.zeros(())]) for one in (wanted, outputs)]
            expected += by_scipy(pair[0], pair[1])
    targets = task.targets(wanted, HOLDS)
    assert float(task.divergence(outputs, targets, HOLDS)) == pytest.approx(expected, rel=1e-5)


def test_a_crf_teaches_its_marginals() -> None:
    task = TagConsistency(3, crf=True)
    potentials = drawn(2, 4, 3, 3)
    there = torch.tensor([[True] * 4, [True, True, False, False]])
    logits = task.targets(potentials, there)
    for row, count in ((0, 4), (1, 2)):
        expected = log_marginals(potentials[row, :count].numpy())
        np.testing.assert_allclose(logits[row, :count].softmax(-1).log(), expected, atol=1e-4)


def test_a_crf_is_compared_sequence_by_sequence() -> None:
    task = TagConsistency(3, crf=True)
    potentials, targets = drawn(2, 3, 3, 3), drawn(2, 3, 3, seed=1)
    there = torch.tensor([[True] * 3, [True, True, False]])
    expected = 0.0
    for row, count in ((0, 3), (1, 2)):
        paths = list(itertools.product(range(3), repeat=count))
        scores, chances = [], []
        shares = softmax(targets[row].numpy(), axis=-1)
        for path in paths:
            before = (0, *path[:-1])
            steps = zip(range(count), before, path, strict=True)
            scores.append(sum(float(potentials[row, k, i, j]) for k, i, j in steps))
            chances.append(np.prod([shares[k, tag] for k, tag in enumerate(path)]))
        expected += float(entropy(np.array(chances), softmax(np.array(scores))))
    potentials.requires_grad_()
    loss = task.divergence(potentials, targets, there)
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-4)
    loss.backward()
    assert potentials.grad is not None and bool((potentials.grad[1, 2] == 0).all())


def test_trees_add_heads_and_the_relations_of_the_best_arc() -> None:
    task = TreeConsistency(2)
    outputs, wanted = drawn(2, 4, 4, 3), drawn(2, 4, 4, 3, seed=1)
    holds = torch.tensor([[False, True, True, True], [False, True, True, False]])
    expected = 0.0
    for row, words in ((0, 3), (1, 2)):
        heads = slice(0, words + 1)
        for word in range(1, words + 1):
            own, their = outputs[row, word, heads], wanted[row, word, heads]
            best = int(their[:, 0].argmax())
            expected += by_scipy(their[:, 0], own[:, 0]) + by_scipy(their[best, 1:], own[best, 1:])
    assert float(task.divergence(outputs, wanted, holds)) == pytest.approx(expected, rel=1e-5)


def test_words_hold_but_not_the_first_token() -> None:
    there = torch.tensor([[True, True, False]])
    columns = torch.tensor([[0, 2, 0]])
    expected = [[False, True, False]]
    assert TagConsistency(2).holds(there, columns).tolist() == expected
    assert TreeConsistency(2).holds(there, columns).tolist() == expected
    marked = torch.tensor([[True] * 3 + [False] * 3])
    assert TextConsistency(2, reads=3).holds(marked, marked).tolist() == [[True, False]]
    assert TextConsistency(2).holds(there, columns).tolist() == there.tolist()


def test_modules_read_what_their_names_say() -> None:
    tags = TagConsistency(3).auxiliaries(8, 4, 0.0)
    assert {name: module.reads for name, module in tags.items()} == {
        "full": ("whole",),
        "forward": ("forward",),
        "backward": ("backward",),
        "future": ("future",),
        "past": ("past",),
    }
    assert tags["full"](drawn(2, 5, 8)).shape == tags["past"](drawn(2, 5, 4)).shape == (2, 5, 3)
    texts = TextConsistency(3).auxiliaries(8, 4, 0.0)
    assert list(texts) == ["full", "first half", "second half"]
    trees = TreeConsistency(3).auxiliaries(8, 4, 0.0)
    pairings = ["forward-forward", "forward-backward", "backward-forward", "backward-backward"]
    assert list(trees) == ["full", *pairings]
    assert trees["forward-backward"].reads == ("forward", "backward")


def test_a_pairing_takes_dependents_from_one_view_and_heads_from_the_other() -> None:
    torch.manual_seed(0)
    module = PairModule(("forward", "backward"), 6, 2, 0.0)
    for weight in module.parameters():
        torch.nn.init.normal_(weight)
    dependents, heads = drawn(1, 4, 6), drawn(1, 4, 6, seed=1)
    before = module(dependents, heads)
    changed = dependents.clone()
    changed[0, 2] += 1
    differs = (module(changed, heads) != before).any(-1)[0]
    assert differs.tolist() == [[place == 2] * 4 for place in range(4)]
    changed = heads.clone()
    changed[0, 2] += 1
    differs = (module(dependents, changed) != before).any(-1)[0]
    assert differs.tolist() == [[False, False, True, False]] * 4
    changed[0, 2], changed[0, 0] = heads[0, 2], 9.0  # the root's state is not read
    assert torch.equal(module(dependents, changed), before)


def test_a_biaffine_head_of_the_same_states_twice_is_that_of_one() -> None:
    torch.manual_seed(0)
    head = BiaffineHead(6, 2, 0.0)
    torch.nn.init.normal_(head.arcs)
    states = drawn(2, 3, 6)
    assert torch.equal(head(states), head(states, states))


def test_several_tasks_all_learn_from_a_text() -> None:
    tasks = {"a": Tag(["x", "y"], "plain"), "b": Tag(["p", "q", "r"], "plain")}
    joint = Several(tasks, dict.fromkeys(tasks, "accuracy")).consistency()
    assert isinstance(joint, JointConsistency) and joint.of_words
    outputs, wanted = drawn(2, 3, 5), drawn(2, 3, 5, seed=1)
    alone = [TagConsistency(2), TagConsistency(3)]
    parts = (slice(0, 2), slice(2, 5))
    expected = [
        float(one.divergence(outputs[..., own], wanted[..., own], HOLDS))
        for one, own in zip(alone, parts, strict=True)
    ]
    assert float(joint.divergence(outputs, wanted, HOLDS)) == pytest.approx(sum(expected))
    modules = joint.auxiliaries(8, 4, 0.0)
    assert len(modules) == 10 and modules["b: past"](drawn(1, 2, 4)).shape == (1, 2, 3)
    own = joint.auxiliary_divergence("b: past", outputs[..., 2:], wanted, HOLDS)
    assert float(own) == pytest.approx(expected[1])


def test_what_cannot_learn_from_raw_text_says_why() -> None:
    span = Span.from_dict(TASKS.get("span")(48, 30, False).to_dict())
    for task, reason in (
        (Choice(4), "no question with options"),
        (span, "no questions"),
        (TASKS.get("regress")(0.0, 1.0), "one number"),
    ):
        with pytest.raises(RecipeError, match=f"{task.kind} learn from labels alone: .*{reason}"):
            task.consistency()
    mixed = {"a": Tag(["x"], "plain"), "b": Classify(["p", "q"])}
    with pytest.raises(RecipeError, match="train them apart"):
        Several(mixed, {"a": "accuracy", "b": "accuracy"}).consistency()
    with pytest.raises(RecipeError, match=r"kind\.marks"):
        TextConsistency(2, reads=3).auxiliaries(8, 8, 0.0)


def test_kinds_have_their_own() -> None:
    assert Classify(["a", "b"], ["<<"]).consistency() == TextConsistency(2, reads=2)
    assert Multilabel(["a", "b"]).consistency() == TextConsistency(2, independent=True)
    assert Parse(["a", "b", "c"], "a").consistency() == TreeConsistency(3)
    assert Tag.from_dict({**Tag(["x"], "plain").to_dict(), "crf": True}).consistency().crf
    assert TreeConsistency(3).norm == 2 * TagConsistency(3).norm == 1.0
    assert Kind().crf is False
