"""How much stage 1 has read is what a count of all its batches gives."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasklm.recipe.model_sections import Train
from tasklm.tasks.examples import Example
from tasklm.tokens import batches
from tasklm.tokens.batches import PackedStream
from tasklm.tokens.example_streams import ExampleStream
from tasklm.tokens.examples import EncodedTurns
from tasklm.tokens.shards import Shards
from tasklm.tokens.task_draws import TaskDraws
from tasklm.tokens.tokenizer import Vocabulary
from tasklm.tracking import SILENT
from tasklm.train.context import TrainingContext
from tasklm.train.reading import read_reading
from tasklm.train.stage1 import JointStage
from tasklm.train.stage_runs import Stage1Plan, run_stage1
from tests.conftest import sentences
from tests.samples import encoded_texts
from tests.tokens.test_turn_streams import encoded, stream_of  # noqa: F401
from tests.train.arms import assert_a_cut_changes_nothing
from tests.train.test_loop import parts  # noqa: F401

FIRST = 20  # the token of the first passage; each passage has a token of its own


def shards_of(sizes: list[int]) -> Shards:
    """Passages of these sizes, which consist of one token each."""
    tokens = np.repeat(np.arange(FIRST, FIRST + len(sizes)), sizes).astype(np.uint16)
    return Shards(tokens, np.cumsum([0, *sizes]))


def counted(rows: Any, passages: int) -> list[int]:
    """How often the token of each passage stands in some rows."""
    counts = Counter(np.asarray(rows).ravel().tolist())
    return [counts[FIRST + passage] for passage in range(passages)]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 70), min_size=1, max_size=25).filter(any),
    st.integers(1, 40),
    st.sets(st.integers(0, 24), max_size=5),
    st.sampled_from([3, 7, 1 << 18]),
)
def test_the_tokens_of_each_passage_are_those_in_the_batches(
    vocabulary: Vocabulary, sizes: list[int], count: int, out: set[int], window: int
) -> None:
    left_out = sorted(one for one in out if one < len(sizes))
    if not any(size for at, size in enumerate(sizes) if at not in left_out):
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "WINDOW", window)
        stream = PackedStream(shards_of(sizes), vocabulary, 24, 3, 5, left_out)
        rows = [stream.next().ids.numpy() for _ in range(count)]
        wanted = counted(rows, len(sizes))
        assert stream.tokens_read().tolist() == wanted
        again = PackedStream(shards_of(sizes), vocabulary, 24, 3, 5, left_out)
        assert again.tokens_read().sum() == 0
        again.restore(stream.state())
        assert again.tokens_read().tolist() == wanted
        assert (again.next().ids == stream.next().ids).all()  # asking changes nothing


@pytest.mark.parametrize("one_shape", [False, True])
@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("count", [0, 3, 17, 60])
def test_examples_are_read_as_often_as_the_batches_have_them(
    vocabulary: Vocabulary, one_shape: bool, tasks: int, count: int
) -> None:
    own = encoded_texts([(text,) for text in sentences(50)], vocabulary, 32, [0] * 50)
    named = [Example(("",), None, task=str(min(i // 20, tasks - 1))) for i in range(50)]
    stream = ExampleStream(own, 8, 3, one_shape, draws=TaskDraws.of(named, 0.5))
    counts = Counter[int]()
    for _ in range(count):
        counts.update(stream.next_groups().tolist())
    assert stream.times_read().tolist() == [counts[group] for group in range(50)]
    again = ExampleStream(own, 8, 3, one_shape, draws=TaskDraws.of(named, 0.5))
    again.restore(stream.state())
    assert again.times_read().tolist() == stream.times_read().tolist()


def test_examples_of_tasks_that_take_turns_are_counted_turn_by_turn(
    encoded: EncodedTurns,
) -> None:
    stream, counts = stream_of(encoded), Counter[int]()
    for _ in range(2 * len(stream) + 5):
        counts.update(stream.next_groups().tolist())
    assert stream.times_read().tolist() == [counts[group] for group in range(len(encoded))]


def context_of(parts: TrainingContext, held_out: list[int]) -> TrainingContext:
    """The inputs of a training whose passages are told apart by their tokens."""
    text = shards_of([3 + at % 40 for at in range(60)])
    return dataclasses.replace(parts, external=text, held_out=held_out)


class Batches:
    """Notes the external batches of a training as they are before they are masked."""

    def __init__(self, patch: pytest.MonkeyPatch, rho1: int) -> None:
        self.rows: dict[int, np.ndarray] = {}
        corrupt = JointStage._corrupt

        def noted(stage: JointStage, batch: Any, step: int, seed: int) -> Any:
            if step % (rho1 + 1):
                self.rows[step] = batch.ids.numpy().copy()
            return corrupt(stage, batch, step, seed)

        patch.setattr(JointStage, "_corrupt", noted)

    def counted(self, steps: int) -> list[int]:
        return counted([self.rows[step] for step in sorted(self.rows) if step < steps], 60)


@pytest.mark.parametrize(
    ("steps", "anneal", "held_out"),
    [
        (0, 0.0, []),
        (3, 0.0, []),
        (60, 0.0, []),
        (20, 0.4, []),
        (30, 0.0, [1, 2, 59]),
        (50, 0.5, [7]),
    ],
)
def test_a_training_knows_what_its_steps_read(
    parts: TrainingContext,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    steps: int,
    anneal: float,
    held_out: list[int],
) -> None:
    context, noted = context_of(parts, held_out), Batches(monkeypatch, rho1=2)
    run_stage1(
        tmp_path, context, Train(anneal=anneal), Stage1Plan(steps, 2, 4, None), SILENT, "stage 1"
    )
    reading = read_reading(tmp_path)
    assert reading.text.tolist() == noted.counted(steps)
    assert not reading.text[held_out].any()
    assert reading.examples.sum() == sum(
        min(4, 40 - 4 * (batch % 10)) for batch in range(-(-steps // 3))
    )
    assert bool(steps) == bool(reading.text.sum())
    assert context.external is not None
    lengths = context.external.lengths
    assert reading.counted.tolist() == [
        0 if at in held_out else size for at, size in enumerate(lengths.tolist())
    ]


def test_without_counts_at_the_start_none_are_named(
    parts: TrainingContext,
    tmp_path: Path,
) -> None:
    plan = Stage1Plan(2, 0, 4, None)
    run_stage1(tmp_path, context_of(parts, []), Train(embeddings="random"), plan, SILENT)
    reading = read_reading(tmp_path)
    assert not reading.counted.any() and not reading.text.any() and reading.examples.sum() == 8


def test_a_training_that_is_cut_off_has_read_the_same(
    parts: TrainingContext,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context = context_of(parts, [3])

    def train(folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        settings = Train(anneal=0.4, checkpoint_seconds=0.0)
        run_stage1(folder, context, settings, Stage1Plan(12, 1, 4, None), SILENT)

    assert_a_cut_changes_nothing(train, tmp_path, monkeypatch, 7)
    straight, cut = (read_reading(tmp_path / name) for name in ("straight", "cut"))
    assert straight.text.tolist() == cut.text.tolist()
    assert straight.examples.tolist() == cut.examples.tolist()
