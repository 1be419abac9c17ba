from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tasklm.errors import RunError
from tasklm.tokens import batches
from tasklm.tokens.batches import SHORTEST_PIECE, PackedStream, TokenBatch, padded_rows
from tasklm.tokens.shards import Shards, write_shards
from tasklm.tokens.tokenizer import Vocabulary
from tests.conftest import sentences


def shards_in(folder: Path, vocabulary: Vocabulary, count: int = 50) -> Shards:
    texts = sentences(count)
    write_shards(folder, [texts[:20], texts[20:]], vocabulary)
    return Shards.open(folder)


def test_shards_hold_what_the_vocabulary_encodes(tmp_path: Path, vocabulary: Vocabulary) -> None:
    shards = shards_in(tmp_path, vocabulary)
    for number, wanted in enumerate(vocabulary.encode(sentences(50))):
        assert shards.tokens[shards.offsets[number] : shards.offsets[number + 1]].tolist() == wanted


def test_damaged_shards_are_refused(tmp_path: Path, vocabulary: Vocabulary) -> None:
    shards_in(tmp_path, vocabulary)
    path = tmp_path / "tokens.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(RunError, match="damaged"):
        Shards.open(tmp_path)


def test_packed_stream_continues_where_it_was(
    tmp_path: Path, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "WINDOW", 16)  # several windows per epoch
    shards = shards_in(tmp_path, vocabulary)
    stream = PackedStream(shards, vocabulary, 32, 5, seed=3)
    for _ in range(7):
        stream.next()
    state = stream.state()
    wanted = [stream.next().ids for _ in range(20)]
    assert stream.epoch > state["epoch"]  # the comparison crosses an epoch
    again = PackedStream(shards, vocabulary, 32, 5, seed=3)
    again.restore(state)
    assert all(torch.equal(again.next().ids, ids) for ids in wanted)


def batch_of(pieces: list[list[int]]) -> TokenBatch:
    """A batch of these pieces with every tensor that a batch may have."""
    grid = torch.tensor(pieces)
    columns = torch.arange(grid.numel()).view_as(grid)
    return TokenBatch(columns, grid, columns + 1, columns[:, :2] + 2, columns % 2, columns[:, :2])


def test_bounds_by_hand() -> None:
    batch = batch_of(
        [[1, 1, 1, 2, 2, 2, 0, 0], [1, 1, 1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0, 0, 0]]
    ).with_bounds()
    assert batch.bounds is not None and batch.bounds.dtype == torch.int32 and batch.longest == 8
    # pieces at 0, 3, 6 (padding), 8 and 16 (padding); then the end, as often as a batch of this
    # shape may need
    assert batch.bounds[0].tolist() == [0, 3, 6, 8, 16] + [24] * (
        3 * (8 // SHORTEST_PIECE + 2) + 1 - 5
    )


@settings(max_examples=100, deadline=None)
@given(data=st.data(), rows=st.integers(1, 5), length=st.integers(3, 40))
def test_bounds_cover_every_token_and_cut_between_pieces(
    data: st.DataObject, rows: int, length: int
) -> None:
    grid = []
    for _ in range(rows):
        sizes = data.draw(st.lists(st.integers(SHORTEST_PIECE, 12)))
        row = [piece for piece, size in enumerate(sizes, 1) for _ in range(size)][:length]
        if row.count(row[-1] if row else 0) < SHORTEST_PIECE:  # cut short
            row = [piece for piece in row if piece != row[-1]]
        grid.append(row + [0] * (length - len(row)))
    bounds = batch_of(grid).with_bounds().bounds
    flat = [(number, piece) for number, row in enumerate(grid) for piece in row]
    assert bounds is not None and bounds.shape == (
        1,
        rows * (length // SHORTEST_PIECE + 2) + 1,
    )  # by the shape alone
    bounds = bounds[0]
    assert (
        bounds[0] == 0
        and bounds[-1] == rows * length
        and (bounds.diff() >= 0).all()
        and int(bounds.diff().max()) <= length
    )
    wanted = [0] + [i for i in range(1, len(flat)) if flat[i] != flat[i - 1]] + [len(flat)]
    assert bounds.unique().tolist() == wanted


def test_bounds_of_pieces_shorter_than_any_text_are_kept_all_the_same() -> None:
    bounds = batch_of([[1, 2, 3, 4, 5, 6]]).with_bounds().bounds
    assert bounds is not None and bounds.tolist() == [[0, 1, 2, 3, 4, 5, 6]]


def test_bounds_of_more_pieces_than_a_launch_takes_come_in_groups_of_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batches, "MOST_BOUNDED", 9)
    batch = batch_of(
        [[1, 1, 1, 2, 2, 2], [1, 1, 1, 1, 0, 0], [1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 1]]
    ).with_bounds()
    assert batch.bounds is not None and batch.bounds.tolist() == [
        [0, 3, 6, 10, *[12] * 5],
        [0, 3, 6, *[12] * 6],
    ]


def test_rows_of_one_piece_have_few_bounds() -> None:
    batch = padded_rows([[5] * 4, [6] * 30], 0).with_bounds()
    assert batch.bounds is not None and batch.bounds.tolist() == [[0, 4, 30, 60, 60]]


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_parts_are_the_whole(parts: int) -> None:
    whole = batch_of([[1, 1, 1, 0]] * 5)
    pieces = [whole.part(number, parts) for number in range(parts)]
    for name in ("ids", "pieces", "positions", "targets", "segments", "places"):
        assert torch.equal(
            torch.cat([getattr(piece, name) for piece in pieces]), getattr(whole, name)
        )
    sizes = [len(piece.ids) for piece in pieces]
    assert max(sizes) - min(sizes) <= 1 and sum(sizes) == 5
    assert whole.part(0, 2).bounds is None


def test_a_batch_goes_to_a_device_whole() -> None:
    moved = batch_of([[1, 1, 1, 0]]).with_bounds().to(torch.device("meta"))
    assert all(value.is_meta for value in vars(moved).values() if isinstance(value, torch.Tensor))
    assert (
        len([value for value in vars(moved).values() if isinstance(value, torch.Tensor)]) == 7
        and moved.longest == 4
    )
