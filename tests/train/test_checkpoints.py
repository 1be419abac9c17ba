"""Checkpoints: two of them, whole, and each with the files that belong to its moment."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tasklm.errors import DamagedError, RunError
from tasklm.models.weights import load_weights, save_weights
from tasklm.train.checkpoints import Checkpoints


def saved(folder: Path, *steps: int, keep: int = 2) -> Checkpoints:
    checkpoints = Checkpoints(folder, keep)
    for step in steps:
        groups = {"model": {"a": torch.full((4,), float(step))}, "optimiser": {"b": torch.zeros(2)}}
        checkpoints.save(step, groups, {"progress": {"step": step}})
    return checkpoints


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


HARMS: dict[str, Callable[[Path], object]] = {
    "flipped": lambda path: path.write_bytes(
        path.read_bytes()[:-9] + bytes([path.read_bytes()[-9] ^ 4]) + path.read_bytes()[-8:]
    ),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:20]),
    "gone": lambda path: path.unlink(),
}


@pytest.mark.parametrize("harm", list(HARMS))
@pytest.mark.parametrize("name", ["model.safetensors", "optimiser.safetensors", "state.json"])
def test_where_the_last_is_damaged_the_one_before_counts(
    tmp_path: Path, harm: str, name: str
) -> None:
    checkpoints = saved(tmp_path, 1, 2, 3)
    HARMS[harm](tmp_path / "checkpoint-000000003" / name)
    last = checkpoints.last()
    assert (
        last is not None
        and last.state == {"progress": {"step": 2}}
        and last.tensors["model"]["a"].tolist() == [2.0] * 4
    )
    assert checkpoints.drop_damaged() == ["checkpoint-000000003"] and names(tmp_path) == [
        "checkpoint-000000002"
    ]
    HARMS[harm](tmp_path / "checkpoint-000000002" / name)
    assert checkpoints.last() is None and checkpoints.drop_damaged() and not checkpoints.there


def test_there_are_always_two_to_go_on_from(tmp_path: Path) -> None:
    saved(tmp_path / "one", 1, 2, 3, keep=1)
    assert names(tmp_path / "one") == ["checkpoint-000000002", "checkpoint-000000003"]
    saved(tmp_path / "three", 1, 2, 3, 4, keep=3)
    assert len(names(tmp_path / "three")) == 3


def test_what_a_kill_left_is_cleared(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 1, 2)
    (tmp_path / "checkpoint.tmp").mkdir()
    (tmp_path / "checkpoint.tmp" / "model.safetensors").touch()
    checkpoints.clear()
    assert names(tmp_path) == []


def test_files_beside_are_those_of_the_checkpoint_that_training_goes_on_from(
    tmp_path: Path,
) -> None:
    checkpoints, best = Checkpoints(tmp_path, beside=("best",)), tmp_path / "best"
    groups = {"model": {"a": torch.zeros(1)}}
    checkpoints.save(1, groups, {})
    best.write_text("of step 2")
    checkpoints.save(2, groups, {})
    best.unlink()
    best.write_text("of step 3, after the last checkpoint")
    last = checkpoints.last()
    assert last is not None
    checkpoints.put_back(last)
    assert best.read_text() == "of step 2"
    (last.folder / "beside" / "best").unlink()  # so that the last one is damaged
    before = checkpoints.last()
    assert before is not None and before.folder.name == "checkpoint-000000001"
    checkpoints.put_back(before)
    assert not best.exists()


def test_checkpoints_of_the_version_before_are_gone_on_from(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, beside=("best",))
    (tmp_path / "best").write_text("kept")
    for step in (1, 2):
        folder = tmp_path / f"checkpoint-{step:09d}"
        folder.mkdir()
        save_weights(folder / "model.safetensors", {"a": torch.ones(step)})
        (folder / "state.json").write_text(json.dumps({"step": step}))
    last = checkpoints.last()
    assert last is not None and last.state == {"step": 2} and len(last.tensors["model"]["a"]) == 2
    checkpoints.put_back(last)
    assert (tmp_path / "best").read_text() == "kept"
    (last.folder / "model.safetensors").write_bytes(b"")
    assert checkpoints.drop_damaged() == ["checkpoint-000000002"]


def test_weights_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    for content in (b"", b"12345678" * 10):
        (tmp_path / "model.safetensors").write_bytes(content)
        with pytest.raises(DamagedError, match=r"model\.safetensors is damaged"):
            load_weights(tmp_path / "model.safetensors")


def test_a_disk_that_is_full_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_weights(tmp_path / "x", {"a": torch.ones(2)})

    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tasklm.models.weights.sync", full)
    with pytest.raises(RunError, match="the disk is full"):
        save_weights(tmp_path / "x", {"a": torch.zeros(2)})
    assert names(tmp_path) == ["x"] and load_weights(tmp_path / "x")["a"].tolist() == [1.0, 1.0]
