"""Decoders and their search: steps with a cache, batches, limits, and what may be seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tasklm.encoders.base import Shape
from tasklm.models.task_model import TaskModel, new_encoder
from tasklm.tasks.base import NONE
from tasklm.tasks.beam_search import NumpyArrays, beam_search
from tasklm.tasks.heads.decoders import (
    DecoderHead,
    Table,
    TorchArrays,
    largest,
    source_of,
    taught_logits,
    write,
)
from tasklm.tasks.heads.lstm_decoder import LstmDecoder
from tasklm.tasks.heads.transformer_decoder import TransformerDecoder
from tasklm.tasks.writing import Search, candidates
from tasklm.tokens.batches import TokenBatch

TYPES, WIDTH, CLS, SEP = 24, 16, 2, 3
DECODERS = ("transformer", "lstm")


class Words:
    """The few things that writing asks of a vocabulary."""

    sep, specials = SEP, [0, 1, CLS, SEP, 4]

    def __len__(self) -> int:
        return TYPES

    def decode(self, numbers: Sequence[int]) -> str:
        return " ".join(map(str, numbers))


def model_of(decoder: str, search: Search | None = None, seed: int = 0) -> TaskModel:
    torch.manual_seed(seed)
    search = search or Search()
    head: DecoderHead
    if decoder == "lstm":
        head = LstmDecoder(WIDTH, 2, 0.0, search)
    else:
        head = TransformerDecoder(WIDTH, 2, 0.0, search)
    encoder = new_encoder("bert", Shape(64, 1, WIDTH, 2, 32, 32))
    model = TaskModel(encoder, head).eval()
    with torch.no_grad():
        encoder.token.weight.normal_(std=1.0)  # so that a few tokens are far likelier than others
    return model


def sources(rows: int, longest: int, seed: int = 0) -> TokenBatch:
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, TYPES, (rows, longest), generator=draw)
    lengths = longest - torch.arange(rows) % (longest - 2)
    columns = torch.arange(longest).expand(rows, longest)
    ids[columns >= lengths[:, None]] = 0
    ids[:, 0] = CLS
    return TokenBatch(ids, (columns < lengths[:, None]).long(), columns)


def row_of(batch: TokenBatch, row: int) -> TokenBatch:
    length = int(batch.pieces[row].sum())
    parts = (batch.ids, batch.pieces, batch.positions)
    return TokenBatch(*(part[row : row + 1, :length] for part in parts))


def next_logs(model: TaskModel, source: TokenBatch, tokens: list[int]) -> Tensor:
    """Without a cache: the whole text so far is read again."""
    given = torch.tensor([[*tokens, NONE]])[:, : len(tokens) + 1]
    batch = TokenBatch(source.ids, source.pieces, source.positions, targets=given)
    logits = taught_logits(model.encoder, model.head, batch)  # type: ignore[arg-type]
    logs = logits[0, -1].float().log_softmax(-1)
    logs[TYPES:] = -torch.inf
    logs[[0, 1, CLS, 4]] = -torch.inf
    return logs


def plain_search(
    model: TaskModel, source: TokenBatch, search: Search
) -> list[tuple[float, list[int]]]:
    """Beam search for one example, as it is usually written down."""
    limit = int(search.limits(np.array([source.ids.shape[1] - 2]))[0])
    live: list[tuple[float, list[int]]] = [(0.0, [])]
    ended: list[tuple[float, list[int]]] = []
    for step in range(1, limit + 1):
        longer = [
            (score + float(log), [*tokens, word])
            for score, tokens in live
            for word, log in enumerate(next_logs(model, source, tokens))
        ]
        longer.sort(key=lambda one: -one[0])
        longer = longer[: 2 * search.beam]
        best = longer[: search.beam]
        ended += [(s / step**search.penalty, t) for s, t in best if t[-1] == SEP and s > -1e30]
        ended = sorted(ended, key=lambda one: -one[0])[: search.beam]
        live = [one for one in longer if one[1][-1] != SEP][: search.beam]
        open_best = live[0][0] / step**search.penalty
        if len(ended) == search.beam and ended[0][0] >= open_best:
            return ended
    cut = [(s / limit**search.penalty, t) for s, t in live if s > -1e30]
    return (ended + cut)[: search.beam]


@pytest.mark.parametrize("decoder", DECODERS)
def test_steps_with_a_cache_are_those_without(decoder: str) -> None:
    model, batch = model_of(decoder), sources(3, 7)
    texts = torch.randint(5, TYPES, (3, 2, 6), generator=torch.Generator().manual_seed(1))
    table = Table.of(model.encoder, WIDTH)
    with torch.inference_mode():
        memory, seen = source_of(model.encoder, batch)
        head = model.head
        assert isinstance(head, DecoderHead)
        steps = head.begin(table, memory, seen, 2)
        last = torch.full((3, 2), CLS)
        for place in range(6):
            with_cache = table.logits(steps.states(last)).log_softmax(-1)
            for row in range(3):
                for number in range(2):
                    before = texts[row, number, :place].tolist()
                    without = next_logs(model, row_of(batch, row), before)
                    usable = without.isfinite()
                    torch.testing.assert_close(
                        with_cache[row, number][usable], without[usable], rtol=1e-4, atol=1e-4
                    )
            last = texts[:, :, place]


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize(("beam", "penalty"), [(1, 1.0), (4, 1.0), (3, 0.0), (3, 0.6)])
def test_a_batch_finds_what_a_plain_search_finds(decoder: str, beam: int, penalty: float) -> None:
    # longer than the decoder has room for at first
    search = Search(beam=beam, penalty=penalty, longest=19, stretch=1.0, best=beam)
    for seed in range(2):
        model, batch = model_of(decoder, search, seed), sources(3, 7, seed)
        with torch.inference_mode():
            outputs = write([model], search, Words(), batch).numpy()
            assert outputs.shape[:3] == (3, 1, beam) and np.isfinite(outputs).all()
            for row in range(3):
                found = candidates(outputs[row, 0], SEP)
                wanted = plain_search(model, row_of(batch, row), search)
                ours = [[*one.tokens, *[SEP] * one.ended] for one in found]
                assert ours == [tokens for _, tokens in wanted]
                np.testing.assert_allclose(
                    [one.score for one in found], [score for score, _ in wanted], rtol=1e-4
                )


@pytest.mark.parametrize("decoder", DECODERS)
def test_no_token_is_predicted_from_later_ones(decoder: str) -> None:
    model, batch = model_of(decoder), sources(2, 6)
    targets = torch.randint(5, TYPES, (2, 8), generator=torch.Generator().manual_seed(2))
    others = targets.clone()
    others[:, 4:] = 9
    with torch.inference_mode():
        one, other = (
            taught_logits(
                model.encoder,
                model.head,  # type: ignore[arg-type]
                TokenBatch(batch.ids, batch.pieces, batch.positions, targets=text),
            )
            for text in (targets, others)
        )
    torch.testing.assert_close(one[:, :5], other[:, :5])
    assert not torch.allclose(one[:, 5], other[:, 5])


@pytest.mark.parametrize("decoder", DECODERS)
def test_padding_changes_nothing(decoder: str) -> None:
    search = Search(beam=3, longest=12)
    model, batch = model_of(decoder, search), sources(5, 9)
    with torch.inference_mode():
        together = write([model], search, Words(), batch).numpy()
        for row in range(5):
            alone = write([model], search, Words(), row_of(batch, row)).numpy()[0, 0]
            found = candidates(together[row, 0], SEP)
            single = candidates(alone, SEP)
            assert [one.tokens for one in found] == [one.tokens for one in single]
    empty = TokenBatch(torch.zeros(1, 4).long(), torch.zeros(1, 4).long(), torch.zeros(1, 4).long())
    with torch.inference_mode():
        assert write([model], search, Words(), empty).isfinite().all()


def test_special_tokens_are_never_written() -> None:
    model, search = model_of("transformer"), Search(beam=4, longest=10, best=4)
    with torch.inference_mode():
        outputs = write([model], search, Words(), sources(6, 8)).numpy()
    tokens = {token for row in outputs for one in candidates(row[0], SEP) for token in one.tokens}
    assert tokens and tokens <= set(range(5, TYPES))


def test_several_models_write_together_by_their_mean() -> None:
    search, batch = Search(beam=2, longest=8), sources(2, 6)
    one, other = (model_of("transformer", search, seed) for seed in (0, 1))
    with torch.inference_mode():
        twice = write([one, one], search, Words(), batch)
        torch.testing.assert_close(twice, write([one], search, Words(), batch))
        both = write([one, other], search, Words(), batch)
    assert not torch.equal(both, twice)


class Drawn:
    """Logarithmic probabilities that depend on the last token and the step alone."""

    sizes: list[int]

    def __init__(self, rows: Sequence[int], arrays: str) -> None:
        self.step, self.arrays, self.rows, self.sizes = 0, arrays, list(rows), []

    def next(self, tokens: object) -> Any:
        own = np.asarray(tokens)
        self.step += 1
        logs = np.stack(
            [
                [np.random.default_rng([self.step, row, token]).normal(size=9) for token in line]
                for row, line in zip(self.rows, own, strict=True)
            ]
        )
        return torch.from_numpy(logs) if self.arrays == "torch" else logs

    def best(self, tokens: object, count: int) -> Any:
        if self.arrays == "torch":
            return self.next(tokens).topk(count, -1)
        return NumpyArrays().top(self.next(tokens), count)

    def reorder(self, parents: object) -> None:
        pass

    def keep(self, rows: object) -> None:
        self.rows = [row for row, wanted in zip(self.rows, np.asarray(rows), strict=True) if wanted]
        self.sizes.append(len(self.rows))


@pytest.mark.parametrize("types", [7, 64, 32 * 12, 32 * 12 + 1, 960])
def test_the_largest_of_many_are_those_of_a_plain_search(types: int) -> None:
    draw = torch.Generator().manual_seed(types)
    for values in (
        torch.randn(3, 2, types, generator=draw),
        torch.arange(float(types)).expand(3, 2, types),  # neighbours: each of another group
        -torch.arange(float(types)).roll(5).expand(3, 2, types),
        torch.where(torch.arange(types) % max(1, types // 32) == 0, 1.0, -torch.inf),  # one group
    ):
        for count in (1, 4, 10):
            best, places, most = largest(values, count)
            wanted, _ = values.topk(min(count, types), -1)
            assert torch.equal(best, wanted) and torch.equal(most, wanted[..., :1])
            assert torch.equal(values.gather(-1, places), wanted)
            assert (places.sort(-1).values.diff(dim=-1) > 0).all()  # none twice


def test_both_libraries_of_arrays_find_the_same() -> None:
    search = Search(beam=3)
    limits = np.array([2, 5, 9])
    first = np.array([7, 7, 8])
    drawn = Drawn(range(3), "numpy")
    ours = beam_search(drawn, first, limits, search, 0, NumpyArrays())
    assert drawn.sizes == [2, 1]  # those that are finished are written no longer
    theirs = beam_search(
        Drawn(range(3), "torch"),
        torch.from_numpy(first),
        torch.from_numpy(limits),
        search,
        0,
        TorchArrays(torch.device("cpu")),
    )
    assert ours.shape == (3, 1, 3, 11)
    np.testing.assert_allclose(ours, theirs.numpy())
    for row in range(3):
        drawn, only = Drawn([row], "numpy"), slice(row, row + 1)
        (own,) = beam_search(drawn, first[only], limits[only], search, 0, NumpyArrays())
        np.testing.assert_allclose(ours[row, ..., : own.shape[-1]], own)
        assert (ours[row, ..., own.shape[-1] :] == -1).all()
