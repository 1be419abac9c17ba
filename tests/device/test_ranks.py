from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tasklm.device import ranks
from tasklm.device.ranks import ALONE, Ranks, _buckets, first_of_all, join


def test_a_process_acts_by_itself_and_is_one_of_several_again_afterwards() -> None:
    ranks = Ranks(2, 4)
    with ranks.by_itself():
        assert (ranks.rank, ranks.count) == (0, 1)
        with ranks.by_itself():
            assert ranks.count == 1
        assert ranks.count == 1  # the inner context does not end the outer one
        values = ranks.sum(torch.tensor([1.0, 2.0]))  # asks nobody: no connection was made
        assert values.tolist() == [1.0, 2.0]
        ranks.wait()
    assert (ranks.rank, ranks.count) == (2, 4)
    with pytest.raises(KeyError), ranks.by_itself():
        raise KeyError
    assert (ranks.rank, ranks.count) == (2, 4)


def _given(rank: int, meeting: str) -> None:
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=2
    )
    ranks, weight = Ranks(rank, 2), torch.nn.Parameter(torch.full((3,), float(rank + 5)))
    with ranks.by_itself():
        ranks.give([weight])  # asks nobody
    assert weight.tolist() == [rank + 5.0] * 3
    ranks.give([weight])
    assert weight.tolist() == [5.0] * 3
    torch.distributed.destroy_process_group()


def test_all_processes_are_given_what_the_first_has(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(_given, (str(tmp_path / "meeting"),), nprocs=2)


def test_acting_by_itself_does_not_make_a_process_the_first() -> None:
    ranks = Ranks(1, 2)
    with ranks.by_itself():
        assert not ranks.first
    assert Ranks(0, 2).first and ALONE.first


def test_buckets_hold_every_gradient_once_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "BUCKET", 40)  # bytes: ten numbers
    sizes = [(3,), (2, 4), (1,), (25,), (9,), (1,), (2,)]
    gradients = [torch.full(size, float(number)) for number, size in enumerate(sizes)]
    buckets = list(_buckets(gradients))
    held = [gradient for bucket, _ in buckets for gradient in bucket]
    assert [id(gradient) for gradient in held] == [id(gradient) for gradient in gradients]
    # a bucket is closed by the gradient that fills it: 3 + 8, 1 + 25, 9 + 1, and the rest
    assert [len(flat) for _, flat in buckets] == [11, 26, 10, 2]
    for bucket, flat in buckets:
        assert flat.tolist() == [
            value for gradient in bucket for value in gradient.flatten().tolist()
        ]


def test_no_gradients_are_no_bucket() -> None:
    assert list(_buckets([])) == []


def test_without_torchrun_there_is_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.delenv("RANK", raising=False)
    assert join(torch.device("cpu")) is ALONE and first_of_all()
    monkeypatch.setenv("RANK", "1")
    assert not first_of_all()
