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
        "side of the square that images are brought to, in pixels; auto: their own if all are "
        "squares of one size up to 64, else 32",
        low=SMALLEST,
        high=LARGEST,
    )
    labelled: int | None = key(
        None,
        "which of the sets of labelled images to use that an .npz file lists (labelled_4000 …), "
        "from 1; the labels of all other images are hidden; auto: all labels",
        low=1,
    )
    dev: bool = key(
        True,
        "hold out data.dev_share of the labelled images where there is no dev set; without one "
        "the last weights are the model",
    )
    width: int | None = key(
        None,
        "feature maps of the first layers, of which the others have 1, 2 or 4 times as many; "
        "auto: 128 (the thesis) on a GPU, 32 on a CPU",
        low=4,
        high=1024,
    )
    whiten: str = key(
        "channels",
        "how pixels are scaled: each colour by its mean and spread, or zca: neighbours are also "
        "decorrelated, as in the VAT code",
        choices=WHITENINGS,
    )
    shifts: int = key(
        0, "augmentation: images are moved by up to so many pixels in training", low=0, high=32
    )
    flips: bool = key(False, "augmentation: half of the images are mirrored in training")
    steps: int | None = key(
        None,
        "optimiser steps; auto: what budget.minutes pays for, without these 50,000 on a GPU and "
        "1,000 on a CPU (the thesis: 200,000)",
        low=1,
    )
    unlabelled_batch: int | None = key(
        None, "images without labels per step; auto: 4 times the labelled ones", low=1
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
        "what is added to images without labels that a student reads: none, random or "
        "adversarial noise; auto: adversarial with vat, else none",
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
        "norm of the displacement at which the direction of adversarial noise is looked for (the "
        "paper's 1e-6 is lost in bf16)",
        low=1e-6,
    )
    view_weight: float | None = key(
        None,
        "weight of the loss of each cell of cross-view; auto: 1 divided by the number of cells, "
        "so that all together count as much as the labels (1: their sum)",
        low=0.0,
    )
    most_bytes: int = key(
        16 << 20, "largest image file that is read, in bytes", low=1024, high=1 << 30
    )
