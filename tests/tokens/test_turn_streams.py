"""Batches of tasks that take turns: shares by size to a power, each of one turn, resumed exactly."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tasklm.tasks.base import TASKS, Task
from tasklm.tasks.classify import Classify
from tasklm.tasks.examples import Example
from tasklm.tasks.members import joined
from tasklm.tasks.several import Several
from tasklm.tasks.tag import Tag
from tasklm.tokens.example_streams import ExampleStream
from tasklm.tokens.examples import EncodedExamples, EncodedTurns
from tasklm.tokens.task_draws import TaskDraws, weight_of
from tasklm.tokens.tokenizer import Vocabulary
from tasklm.tokens.turn_streams import TurnStream
from tests.conftest import sentences

SIZES = {"small": 20, "large": 200, "choice": 30, "crf": 60}
BATCH = 6


def several() -> Several:
    options = TASKS.get("choice").from_dict({"kind": "choice", "options": 3})
    tasks: dict[str, Task] = {
        "small": Classify(["no", "yes"]),
        "large": Classify(["no", "yes"]),
        "choice": options,
        "crf": Tag(["O", "B-x"], "BIO", crf=True),
    }
    metrics = {name: task.metrics[0] for name, task in tasks.items()}
    return Several(tasks, metrics)


def examples(name: str, size: int) -> list[Example]:
    texts = sentences(size, sum(map(ord, name)))
    if name == "crf":
        return [
            Example((text,), ["O"] * len(text.split()), words=tuple(text.split())) for text in texts
        ]
    if name == "choice":
        return [Example((text, "what ?", "ball", "road", "music"), 2) for text in texts]
    return [Example((text,), "yes") for text in texts]


@pytest.fixture(scope="module")
def encoded(vocabulary: Vocabulary) -> EncodedTurns:
    every = [one for name, size in SIZES.items() for one in joined(name, examples(name, size))]
    turns = EncodedExamples.of(several(), every, vocabulary, 32)
    assert isinstance(turns, EncodedTurns)
    return turns


def stream_of(
    encoded: EncodedTurns, power: float = 0.75, seed: int = 5, one_shape: bool = False
) -> TurnStream:
    streams = []
    for part, turn in zip(encoded.parts, several().turns, strict=True):
        draws = TaskDraws.of(part.group_examples, power)
        streams.append(ExampleStream(part, BATCH, seed, one_shape, turn.task.packs, draws))
    weights = [weight_of(part.group_examples, power) for part in encoded.parts]
    return TurnStream(encoded, streams, weights, seed)


@pytest.mark.parametrize("power", [0.0, 0.75, 1.0])
def test_tasks_are_drawn_by_their_sizes_to_a_power(encoded: EncodedTurns, power: float) -> None:
    stream, tasks = stream_of(encoded, power), encoded.group_examples
    counts: Counter[str] = Counter()
    epochs = 6
    for _ in range(epochs * len(stream)):
        names = [tasks[group].task for group in stream.next_groups()]
        assert len({name in ("small", "large") or name for name in names}) == 1
        counts.update(names)
    assert stream.epoch == epochs
    weights = {name: size**power for name, size in SIZES.items()}
    for name, weight in weights.items():
        share = sum(SIZES.values()) * weight / sum(weights.values())
        assert counts[name] / epochs == pytest.approx(share, abs=BATCH)


def test_every_example_of_a_turn_comes_before_any_comes_again(encoded: EncodedTurns) -> None:
    stream = stream_of(encoded)
    drawn: dict[int, list[int]] = {}
    for _ in range(8 * len(stream)):
        groups = stream.next_groups()
        drawn.setdefault(encoded.turn_and_own(groups)[0], []).extend(groups.tolist())
    for turn in (1, 2):
        size = len(encoded.parts[turn])
        for first in range(0, len(drawn[turn]) - size, size):
            assert len(set(drawn[turn][first : first + size])) == size


def test_training_begins_with_a_batch_of_each_turn(encoded: EncodedTurns) -> None:
    stream = stream_of(encoded)
    assert sorted(stream.turns(0)[:3].tolist()) == [0, 1, 2]
    for epoch in (0, 1):
        counts = np.bincount(stream.turns(epoch), minlength=3)
        assert counts.tolist() == stream.counts


def test_a_stream_goes_on_where_another_stopped(encoded: EncodedTurns) -> None:
    whole, first, second = (stream_of(encoded) for _ in range(3))
    every = [whole.next_groups() for _ in range(3 * len(whole))]
    stop = len(whole) + 7
    begun = [first.next_groups() for _ in range(stop)]
    second.restore(first.state())
    rest = [second.next_groups() for _ in range(3 * len(whole) - stop)]
    for one, other in zip(every, [*begun, *rest], strict=True):
        np.testing.assert_array_equal(one, other)
    assert whole.state() == second.state()
    others = [stream_of(encoded, seed=6).next_groups() for _ in range(3)]
    assert any(one.tolist() != other.tolist() for one, other in zip(every, others, strict=False))


def test_batches_have_the_turn_the_units_and_few_shapes(encoded: EncodedTurns) -> None:
    stream, shapes = stream_of(encoded, one_shape=True), set()
    for _ in range(2 * len(stream)):
        groups = stream.next_groups()
        batch = stream.task_batch(groups)
        turn, own = encoded.turn_and_own(groups)
        units = [encoded.units[number] for number in encoded.numbers_of(groups)]
        assert batch.turn == turn and batch.together == (1 if batch.most else units_of(turn))
        tokens = sorted(token for unit in units for token in unit.tokens)
        assert sorted(batch.ids[batch.pieces > 0].tolist()) == tokens
        text = stream.text_batch(groups, 4)
        assert len(own) == int((text.positions == 0)[text.pieces > 0].sum())
        shapes.add((turn, *batch.ids.shape))
    assert len(shapes) <= 1 + 1 + 3  # packed, packed, and padded to one of three lengths


def units_of(turn: int) -> int:
    """The rows of an example of a turn, where batches are padded."""
    return several().turns[turn].task.together


def test_a_turn_without_examples_has_no_batches(vocabulary: Vocabulary, tmp_path: Path) -> None:
    every = joined("crf", examples("crf", 9))
    encoded = EncodedExamples.of(several(), every, vocabulary, 32)
    assert isinstance(encoded, EncodedTurns)
    streams = [ExampleStream(part, 4, 1) if len(part) else None for part in encoded.parts]
    weights = [weight_of(part.group_examples, 0.5) for part in encoded.parts]
    stream = TurnStream(encoded, streams, weights, 1)
    assert stream.counts[:2] == [0, 0] and len(stream) == 2
    assert {stream.next().turn for _ in range(6)} == {2}
    assert stream_state_is_json(stream)


def stream_state_is_json(stream: TurnStream) -> bool:
    state = stream.state()
    return state["streams"][0] is None and set(state) == {"epoch", "index", "streams"}
