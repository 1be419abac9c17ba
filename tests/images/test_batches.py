"""Batches of images: a function of the seed and the step, gathered and moved on the device."""

from __future__ import annotations

import numpy as np
import torch

from tasklm.images.batches import Drawing, gathered


def drawing(seed: int = 1, **changed: int) -> Drawing:
    values = {"batch": 4, "unlabelled_batch": 6, "shifts": 2, "flips": True, **changed}
    return Drawing(np.arange(10), np.arange(10, 23), seed=seed, **values)


def test_a_step_always_has_the_same_batch() -> None:
    one, again, other = (drawing(seed).of_step(7) for seed in (1, 1, 2))
    assert all(torch.equal(own, vars(again)[name]) for name, own in vars(one).items())
    assert not torch.equal(one.unlabelled, other.unlabelled)


def test_a_pass_reads_every_image_once() -> None:
    steps = [drawing().of_step(step) for step in range(5)]
    labelled = torch.cat([step.labelled for step in steps])
    assert sorted(labelled[:10].tolist()) == sorted(labelled[10:].tolist()) == list(range(10))
    unlabelled = torch.cat([step.unlabelled for step in steps])[:26]
    assert sorted(unlabelled[:13].tolist()) == sorted(unlabelled[13:].tolist())


def test_images_are_moved_and_mirrored_as_by_numpy() -> None:
    pixels = torch.randint(256, (5, 8, 8, 3), dtype=torch.uint8)
    moves = torch.tensor([[0, 0, 0], [2, -1, 0], [-2, 2, 1], [0, 0, 1]])
    numbers = torch.tensor([4, 0, 2, 2])
    moved = gathered(pixels, numbers, moves).numpy()
    for place, (number, (down, right, mirrored)) in enumerate(
        zip(numbers.tolist(), moves.tolist(), strict=True)
    ):
        padded = np.pad(pixels[number].numpy(), ((2, 2), (2, 2), (0, 0)), "reflect")
        wanted = padded[2 + down : 10 + down]
        if mirrored:
            padded = padded[:, ::-1]
            wanted = padded[2 + down : 10 + down, 2 - right : 10 - right]
        else:
            wanted = wanted[:, 2 + right : 10 + right]
        np.testing.assert_array_equal(moved[place], wanted)
    assert torch.equal(gathered(pixels, numbers), pixels[numbers])


def test_no_moves_are_drawn_without_augmentation() -> None:
    batch = drawing(shifts=0, flips=False).of_step(3)
    assert not batch.moves.any() and not batch.unlabelled_moves.any()
