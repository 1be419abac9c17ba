"""The section of a recipe about images: [image]."""

from __future__ import annotations

from dataclasses import dataclass

from tasklm.recipe.parsing import key

IMAGE = "image"  # the kind of task
SMALLEST, LARGEST = 12, 128  # sides of the images that a network reads
NOISES = ("auto", "none", "random", "adversarial")
WHITENINGS = ("channels", "zca")


@dataclass(frozen=True)
class Image:
    """How images are read, and how a convolutional network learns from them."""

    size: int | None = key(
        None,
        "side of the square that images are resized to, in pixels; auto: their own if all are "
        "squares of one size up to 64, else 32",
        low=SMALLEST,
        high=LARGEST,
    )
    labelled: int | None = key(
        None,
        "which set of labelled images in an .npz file to use (labelled_4000 …), from 1; the "
        "labels of all other images are hidden; auto: all labels",
        low=1,
    )
    dev: bool = key(
        True,
        "hold out data.dev_share of the labelled images where there is no dev set; without one "
        "the last weights are the model",
    )
    width: int | None = key(
        None,
        "feature maps of the first layers; the others have 1, 2 or 4 times as many; auto: 128 "
        "(the thesis) on a GPU, 32 on a CPU",
        low=4,
        high=1024,
    )
    whiten: str = key(
        "channels",
        "how pixels are scaled: each colour by its mean and standard deviation, or zca: also "
        "decorrelate neighbours, as in the VAT code",
        choices=WHITENINGS,
    )
    shifts: int = key(
        0, "augmentation: shift images by up to this many pixels in training", low=0, high=32
    )
    flips: bool = key(False, "augmentation: mirror half of the images in training")
    steps: int | None = key(
        None,
        "optimiser steps; auto: as many as budget.minutes allows, without it 50,000 on a GPU and "
        "1,000 on a CPU (the thesis: 200,000)",
        low=1,
    )
    unlabelled_batch: int | None = key(
        None, "unlabelled images per step; auto: 4 times the labelled ones", low=1
    )
    decay: float = key(
        0.3,
        "share of the steps, at the end, in which the learning rate falls to 0 (VAT code: 0.08)",
        low=0.0001,
        high=1.0,
    )
    dropout: float = key(0.5, "dropout after each pooling", low=0.0, high=0.9)
    noise: str = key(
        "auto",
        "noise on the unlabelled images that a student reads: none, random or adversarial; auto: "
        "adversarial with vat, else none",
        choices=NOISES,
    )
    noise_norm: float | None = key(
        None,
        "norm of that noise, on scaled pixels; auto: 18 % of the mean norm of an image, 14 % with "
        "shifts (the VAT code: 10 and 8, where images have 55)",
        low=0.0,
    )
    noise_probe: float = key(
        1.0,
        "norm of the displacement used to find the direction of adversarial noise (the paper's "
        "1e-6 is lost in bf16)",
        low=1e-6,
    )
    view_weight: float | None = key(
        None,
        "weight of each cell's loss in cross-view; auto: 1 divided by the number of cells, so "
        "that together they count as much as the labels (1: their sum)",
        low=0.0,
    )
    most_bytes: int = key(
        16 << 20, "largest image file that is read, in bytes", low=1024, high=1 << 30
    )
