"""The examples of an epoch of several tasks: by size to a power, every one before any again."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tasklm.tasks.classify import Classify
from tasklm.tasks.examples import Example
from tasklm.tasks.members import joined
from tasklm.tasks.several import Several
from tasklm.tasks.tag import Tag
from tasklm.tokens.example_streams import ExampleStream
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.task_draws import TaskDraws
from tasklm.tokens.tokenizer import Vocabulary

SIZES = {"small": 7, "large": 200, "middle": 50}


def examples(sizes: dict[str, int]) -> list[Example]:
    """So many examples of each task, shuffled."""
    names = [name for name, size in sizes.items() for _ in range(size)]
    order = np.random.default_rng(1).permutation(len(names))
    return [Example((f"text {place}",), "x", task=names[place]) for place in order]


def draws(power: float, sizes: dict[str, int] = SIZES) -> TaskDraws:
    drawn = TaskDraws.of(examples(sizes), power)
    assert drawn is not None
    return drawn


@pytest.mark.parametrize("power", [0.0, 0.5, 0.75, 1.0])
def test_counts_are_sizes_to_a_power(power: float) -> None:
    drawn, tasks = draws(power), [example.task for example in examples(SIZES)]
    weights = {name: size**power for name, size in SIZES.items()}
    total = sum(SIZES.values())
    for epoch in range(3):
        counts = Counter(tasks[place] for place in drawn.order(5, epoch))
        for name, weight in weights.items():
            assert abs(counts[name] - total * weight / sum(weights.values())) <= 0.5
        assert sum(counts.values()) == drawn.size


@pytest.mark.parametrize("power", [0.0, 0.3, 0.75])
def test_every_example_of_a_task_comes_before_any_comes_again(power: float) -> None:
    drawn = draws(power)
    epochs = [drawn.order(3, epoch) for epoch in range(12)]
    for group in drawn.groups:
        seen: Counter[int] = Counter()
        for order in epochs:
            seen.update(place for place in order.tolist() if place in set(group.tolist()))
            times = [seen[place] for place in group.tolist()]
            assert max(times) - min(times) <= 1
        assert max(seen.values()) >= 1


def test_order_is_decided_by_seed_and_epoch_alone() -> None:
    one, two = draws(0.75), draws(0.75)
    np.testing.assert_array_equal(one.order(3, 4), two.order(3, 4))
    np.testing.assert_array_equal(one.order(3, 4), one.order(3, 4))
    assert not np.array_equal(one.order(3, 4), one.order(4, 4))
    assert not np.array_equal(one.order(3, 4), one.order(3, 5))
    tasks = np.array([example.task for example in examples(SIZES)])[one.order(3, 0)]
    changes = np.count_nonzero(tasks[1:] != tasks[:-1])
    assert changes > len(SIZES)  # the tasks are mixed, not one after the other


def test_power_1_has_every_example_once_per_epoch() -> None:
    drawn = draws(1.0)
    for epoch in range(3):
        np.testing.assert_array_equal(np.sort(drawn.order(1, epoch)), np.arange(257))


def test_even_the_smallest_task_is_drawn() -> None:
    assert sorted(draws(1.0, {"one": 1, "many": 3000}).counts) == [1, 3000]
    assert draws(0.0, {"one": 1, "many": 2999}).counts == (1500, 1500)


def test_one_task_is_not_drawn() -> None:
    assert TaskDraws.of(examples({"only": 9}), 0.75) is None
    assert TaskDraws.of([Example(("text",), "x")], 0.75) is None


def test_rows_of_long_sentences_are_drawn_with_their_task(vocabulary: Vocabulary) -> None:
    """A sentence that is too long for a row has several, so rows and examples differ in number."""
    words = ("cat", "likes", "music") * 8
    sentence = Example((" ".join(words),), ["O"] * 24, words=words)
    rows = [
        *joined("tags", [sentence] * 4),
        *joined("texts", [Example((f"the cat {place}",), "yes") for place in range(30)]),
    ]
    tasks = {"tags": Tag(["B-x", "O"], "BIO"), "texts": Classify(["no", "yes"])}
    several = Several(tasks, {"tags": "accuracy", "texts": "accuracy"})
    encoded = EncodedExamples.of(several, rows, vocabulary, 12)
    assert len(encoded) > len(rows)
    drawn = TaskDraws.of(encoded.group_examples, 1.0)
    stream = ExampleStream(encoded, 8, 1, draws=drawn)
    batches = [stream.next_groups() for _ in range(len(stream))]
    np.testing.assert_array_equal(np.sort(np.concatenate(batches)), np.arange(len(encoded)))
    assert stream.epoch == 1
