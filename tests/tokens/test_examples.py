from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import Tensor

from tasklm.encoders.base import Shape
from tasklm.encoders.bert import Bert
from tasklm.models.task_model import task_outputs
from tasklm.objectives.base import Masks
from tasklm.tasks.classify import Classify
from tasklm.tokens.example_streams import LENGTHS, ExampleStream
from tasklm.tokens.examples import MOST, EncodedExamples
from tasklm.tokens.masking import NONE
from tasklm.tokens.tokenizer import Vocabulary
from tests.conftest import sentences
from tests.encoders.samples import stir
from tests.samples import encoded_texts

LENGTH = 64


def of_all_lengths(
    vocabulary: Vocabulary, count: int, targets: Tensor | None = None, seed: int = 0
) -> EncodedExamples:
    """Returns examples between a few tokens and more than LENGTH, which are cut."""
    draw, words = random.Random(seed), " ".join(sentences(40, seed)).split()
    texts = [
        (" ".join(draw.choices(words, k=min(60, 1 + int(draw.expovariate(0.1))))),)
        for _ in range(count)
    ]
    return encoded_texts(
        texts, vocabulary, LENGTH, torch.arange(count) if targets is None else targets
    )


@pytest.mark.parametrize("packed", [False, True])
def test_example_stream_gives_each_example_once_per_epoch(
    vocabulary: Vocabulary, packed: bool
) -> None:
    texts = [(text,) for text in sentences(23)]
    examples = encoded_texts(texts, vocabulary, 32, torch.arange(23))
    stream = ExampleStream(examples, 4, seed=1, one_shape=packed)

    def epoch() -> list[int]:
        targets = torch.cat([stream.next().targets.flatten() for _ in range(len(stream))])  # type: ignore[union-attr]
        return [target for target in targets.tolist() if target != NONE]

    first, second = epoch(), epoch()
    assert sorted(first) == sorted(second) == list(range(23))
    assert first != second
    assert stream.state() == {"epoch": 2, "index": 0}


def test_pairs_are_joined_and_the_longer_part_is_cut(vocabulary: Vocabulary) -> None:
    short, long = "the cat", " ".join(["cold water"] * 40)
    row = encoded_texts([(short, long)], vocabulary, 24).units[0].tokens
    kept = vocabulary.encode([short])[0]
    assert len(row) == 24 and row[0] == vocabulary.cls
    assert (
        row[1 : 1 + len(kept)] == kept
        and row[1 + len(kept)] == vocabulary.sep
        and row[-1] == vocabulary.sep
    )


def test_padding_is_marked(vocabulary: Vocabulary) -> None:
    examples = encoded_texts([("the cat",), ("the cat likes the red ball",)], vocabulary, 64)
    batch = examples.padded(np.array([0, 1]))
    assert torch.equal(batch.pieces == 0, batch.ids == vocabulary.pad)
    assert batch.ids.shape[1] % 8 == 0
    assert (
        batch.targets is None and batch.places is not None and batch.places.tolist() == [[0], [0]]
    )


def small_bert(vocabulary: Vocabulary) -> Bert:
    torch.manual_seed(0)
    bert = Bert(Shape(len(vocabulary), 2, 32, 4, 64, LENGTH)).eval()
    stir(bert)
    return bert


def test_packed_examples_read_what_padded_ones_read(vocabulary: Vocabulary) -> None:
    examples = of_all_lengths(vocabulary, 50)
    numbers = np.random.default_rng(0).permutation(50)[:40]
    padded = examples.padded(numbers)
    packed = examples.packed(numbers, 5, LENGTH)
    bert = small_bert(vocabulary)
    assert packed.places is not None and packed.targets is not None and padded.targets is not None
    held = packed.targets != NONE
    found = bert(packed)[torch.arange(len(held))[:, None], packed.places][
        held
    ]  # (examples, width), in the order of the rows
    back = torch.argsort(packed.targets[held])
    wanted = bert(padded)[:, 0][torch.argsort(padded.targets[:, 0])]
    assert torch.equal(
        packed.targets[held][back], padded.targets.flatten().sort().values
    )  # each example once, NONE elsewhere
    torch.testing.assert_close(found[back], wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("length", [LENGTH, 2 * LENGTH])
def test_packed_rows_hold_examples_end_to_end(vocabulary: Vocabulary, length: int) -> None:
    examples, numbers = of_all_lengths(vocabulary, 60), np.arange(60)
    batch = examples.packed(numbers, 1, length)
    assert batch.places is not None and batch.targets is not None
    rows = len(batch.ids)
    assert (
        rows > 1
        and batch.ids.shape == (rows, length)
        and batch.places.shape == batch.targets.shape == (rows, MOST)
    )
    for row in range(rows):
        end = 0
        for piece, (first, number) in enumerate(
            zip(batch.places[row].tolist(), batch.targets[row].tolist(), strict=True), 1
        ):
            if number == NONE:
                assert first == 0
                continue
            tokens = examples.units[number].tokens
            inside = slice(first, first + len(tokens))
            assert first == end and batch.ids[row, inside].tolist() == tokens
            assert (batch.pieces[row, inside] == piece).all() and batch.positions[
                row, inside
            ].tolist() == list(range(len(tokens)))
            end += len(tokens)
        assert (
            (batch.ids[row, end:] == vocabulary.pad).all()
            and not batch.pieces[row, end:].any()
            and not batch.positions[row, end:].any()
        )
    wide = examples.packed(
        numbers, rows + 3, length
    )  # rows that are asked for and not needed are padding
    assert (
        torch.equal(wide.ids[:rows], batch.ids)
        and not wide.pieces[rows:].any()
        and (wide.targets[rows:] == NONE).all()
    )  # type: ignore[index]


def test_no_row_holds_more_than_it_has_places(vocabulary: Vocabulary) -> None:
    count = 3 * MOST + 2
    examples = encoded_texts([("music",)] * count, vocabulary, 256, torch.arange(count))
    batch = examples.packed(np.arange(count), 1, 512)
    assert (batch.targets != NONE).sum(1).tolist() == [MOST, MOST, MOST, 2]  # type: ignore[attr-defined]
    assert batch.pieces.amax(1).tolist() == [MOST, MOST, MOST, 2]


def test_targets_of_several_numbers_are_packed_too(vocabulary: Vocabulary) -> None:
    targets = torch.arange(30).view(10, 3)
    batch = of_all_lengths(vocabulary, 10, targets).packed(np.arange(10), 4, LENGTH)
    assert batch.targets is not None and batch.targets.shape[1:] == (MOST, 3)
    held = (batch.targets != NONE).all(-1)
    assert (
        sorted(batch.targets[held].tolist()) == targets.tolist()
        and (batch.targets[~held] == NONE).all()
    )


def test_the_loss_of_packed_examples_is_that_of_padded_ones(vocabulary: Vocabulary) -> None:
    labels = torch.randint(3, (40,), generator=torch.Generator().manual_seed(0))
    examples = of_all_lengths(vocabulary, 40, labels)
    numbers = np.arange(40)
    bert = small_bert(vocabulary)
    task = Classify(["a", "b", "c"])
    head = task.head(32, 0.0)
    stir(head)
    outcomes = []
    for batch in (examples.padded(numbers), examples.packed(numbers, 20, 2 * LENGTH)):
        bert.zero_grad()
        assert batch.targets is not None
        loss = task.loss(task_outputs(bert, head, batch), batch.targets)
        loss.backward()
        outcomes.append(
            (
                loss.detach(),
                torch.cat(
                    [p.grad.flatten() for p in bert.layers.parameters() if p.grad is not None]
                ),
            )
        )
    torch.testing.assert_close(outcomes[1], outcomes[0], atol=1e-4, rtol=1e-4)


def test_in_order_gives_every_example_padded_by_its_like(vocabulary: Vocabulary) -> None:
    examples = of_all_lengths(vocabulary, 50)
    batches = list(examples.in_order(8))
    numbers = np.concatenate([numbers for numbers, _ in batches])
    assert (
        sorted(numbers.tolist()) == list(range(50))
        and (np.diff(examples.lengths[numbers]) >= 0).all()
    )
    for numbers, batch in batches:
        assert batch.targets is not None and batch.targets.flatten().tolist() == numbers.tolist()
        assert (batch.pieces.sum(1).numpy() == examples.lengths[numbers]).all()


def test_packed_batches_have_one_shape_and_about_as_many_tokens(vocabulary: Vocabulary) -> None:
    examples = of_all_lengths(vocabulary, 16 * 32 * 2)
    stream = ExampleStream(examples, 32, seed=5, one_shape=True)
    batches = [stream.next() for _ in range(3 * len(stream))]
    assert stream.shape is not None
    rows, length = stream.shape
    assert {batch.ids.shape for batch in batches} == {(rows, length)}
    assert {batch.targets.shape for batch in batches} == {(rows, MOST)}  # type: ignore[union-attr]
    assert all(int((batch.targets != NONE).sum()) == 32 for batch in batches)  # type: ignore[union-attr]
    dealt = np.array([int((batch.pieces > 0).sum()) for batch in batches])
    by_chance = np.random.default_rng(0).permutation(examples.lengths).reshape(-1, 32).sum(1)
    assert dealt.std() < by_chance.std() / 4
    assert dealt.sum() == 3 * examples.lengths.sum()
    assert rows * length < 1.35 * dealt.mean()  # little of it is padding


@pytest.mark.parametrize(("count", "batch"), [(300, 8), (500, 16), (100, 200)])
def test_small_batches_have_one_shape_in_every_epoch(
    vocabulary: Vocabulary, count: int, batch: int
) -> None:
    """Each epoch deals otherwise; a batch of more rows would be compiled anew."""
    examples = of_all_lengths(vocabulary, count)
    stream = ExampleStream(examples, batch, seed=1, one_shape=True)
    assert stream.shape is not None and stream.shape[0] <= batch
    assert {len(stream.next().ids) for _ in range(20 * len(stream))} == {stream.shape[0]}


def test_rows_are_of_once_or_twice_the_longest_example(vocabulary: Vocabulary) -> None:
    """Of just over half a row: one a row, or three in two rows.

    Of a quarter: four in one, and nothing is gained.
    """
    for words, times in ((36, 2), (14, 1)):
        examples = encoded_texts(
            [(" ".join(["cat"] * words),)] * 64, vocabulary, LENGTH, torch.arange(64)
        )
        assert len(set(examples.lengths)) == 1 and examples.lengths[0] == words + 2
        shape = ExampleStream(examples, 32, seed=0, one_shape=True).shape
        assert shape is not None and shape[1] == times * LENGTH


def test_batches_that_cannot_be_packed_are_padded_to_few_lengths(vocabulary: Vocabulary) -> None:
    examples = of_all_lengths(vocabulary, 500)
    stream = ExampleStream(examples, 16, seed=5, one_shape=True, packs=False)
    assert 1 < len(stream.lengths) <= LENGTHS and stream.lengths[-1] >= examples.lengths.max()
    batches = [stream.next() for _ in range(5 * len(stream))]
    assert {batch.ids.shape for batch in batches} == {(16, length) for length in stream.lengths}
    assert (
        sum(batch.ids.numel() for batch in batches) < 0.75 * len(batches) * 16 * stream.lengths[-1]
    )


def grouped(vocabulary: Vocabulary, count: int, together: int) -> EncodedExamples:
    """Examples of several units each; a unit's target is (its group, its number in it)."""
    alone = of_all_lengths(vocabulary, count * together)
    for number, unit in enumerate(alone.units):
        unit.targets = np.array([divmod(number, together)], np.int64)
    return EncodedExamples(alone.examples, alone.units, vocabulary, LENGTH, together)


@pytest.mark.parametrize("together", [2, 4, 5, 30])
def test_groups_stay_together_in_packed_rows(vocabulary: Vocabulary, together: int) -> None:
    examples = grouped(vocabulary, 40, together)
    stream = ExampleStream(examples, 8 * together, seed=1, one_shape=True)
    assert stream.batch == 8 and len(stream) == 5  # rows are counted, not groups
    seen = []
    for _ in range(len(stream)):
        batch = stream.next()
        assert batch.targets is not None and batch.places is not None
        groups = batch.targets.reshape(-1, together, 2)
        real = groups[groups[:, 0, 0] != NONE]
        assert bool((real[..., 0] == real[:, :1, 0]).all()) and bool(
            (real[..., 1] == torch.arange(together)).all()
        )
        assert bool(
            (
                batch.ids.gather(1, batch.places)[batch.targets[..., 0] != NONE] == vocabulary.cls
            ).all()
        )
        seen += real[:, 0, 0].tolist()
    assert sorted(seen) == list(range(40))


@pytest.mark.parametrize("one_shape", [False, True])
def test_a_language_model_reads_one_unit_of_each_group(
    vocabulary: Vocabulary, one_shape: bool
) -> None:
    examples = grouped(vocabulary, 20, 4)
    stream = ExampleStream(examples, 16, seed=1, one_shape=one_shape)
    groups = stream.next_groups()
    for seed in range(4):
        text = stream.text_batch(groups, seed)
        assert text.targets is not None and text.together == 1
        targets = text.targets[text.targets[..., 0] != NONE]
        assert sorted(targets[:, 0].tolist()) == sorted(groups.tolist()) and set(
            targets[:, 1].tolist()
        ) == {seed}


@pytest.mark.parametrize("parts", [2, 3, 5])
def test_micro_batches_of_text_are_cut_where_those_of_its_rows_are(
    vocabulary: Vocabulary, parts: int
) -> None:
    batch = grouped(vocabulary, 5, 4).padded(np.arange(5))
    masked = Masks(vocabulary, Shape(len(vocabulary), 1, 8, 1, 8, LENGTH), 0.3, "bert").draw(
        batch, seed=1
    )
    cut = [masked.part(number, parts) for number in range(parts)]
    assert [len(part.picked) for part in cut] == [len(part.batch.ids) for part in cut]
    assert all(len(part.batch.ids) % 4 == 0 for part in cut)
    assert torch.equal(torch.cat([part.answers for part in cut]), masked.answers)


def test_padded_batches_hold_neighbours_in_length(vocabulary: Vocabulary) -> None:
    examples = of_all_lengths(vocabulary, 500)
    stream = ExampleStream(examples, 16, seed=5)
    places = sum(stream.next().ids.numel() for _ in range(len(stream)))
    order = np.random.default_rng(0).permutation(500)
    by_chance = sum(examples.padded(order[i : i + 16]).ids.numel() for i in range(0, 500, 16))
    assert places < 0.75 * by_chance


@pytest.mark.parametrize("packed", [False, True])
def test_example_stream_continues_where_it_was(vocabulary: Vocabulary, packed: bool) -> None:
    examples = of_all_lengths(vocabulary, 70)
    stream = ExampleStream(examples, 4, seed=3, one_shape=packed)
    for _ in range(7):
        stream.next()
    state = stream.state()
    wanted = [stream.next() for _ in range(20)]
    assert stream.epoch > state["epoch"]  # the comparison crosses an epoch
    again = ExampleStream(examples, 4, seed=3, one_shape=packed)
    again.restore(state)
    for batch in wanted:
        found = again.next()
        assert torch.equal(found.ids, batch.ids) and torch.equal(found.targets, batch.targets)  # type: ignore[arg-type]


@pytest.mark.parametrize("packed", [False, True])
def test_the_seed_sets_the_order(vocabulary: Vocabulary, packed: bool) -> None:
    examples = of_all_lengths(vocabulary, 40)
    first, same, other = (
        ExampleStream(examples, 8, seed=seed, one_shape=packed).next() for seed in (1, 1, 2)
    )
    assert torch.equal(first.ids, same.ids)
    assert first.ids.shape != other.ids.shape or not torch.equal(first.ids, other.ids)
