"""The runs of the tables and figures on images, and the numbers that were published."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

NONE, RANDOM, ADVERSARIAL = "none", "random", "adversarial"
# method → (title, finetune.unlabelled, image.noise)
METHODS = {
    "supervised": ("supervised", "none", NONE),
    "vat": ("VAT", "vat", ADVERSARIAL),
    "cvt": ("CVT, no noise", "cross-view", NONE),
    "cvt-random": ("CVT, random noise", "cross-view", RANDOM),
    "cvt-adversarial": ("CVT, adversarial noise", "cross-view", ADVERSARIAL),
    "cvt-vat": ("CVT + VAT (both learn)", "cross-view,vat", ADVERSARIAL),
}
# table 4.6 of the thesis: error % on CIFAR-10 with 4,000 labels, without and with shifts
PUBLISHED = {
    "supervised": ("23.61 ± 0.60", "19.61 ± 0.56"),
    "vat": ("13.29 ± 0.33", "10.90 ± 0.31"),
    "cvt": ("14.63 ± 0.20", "12.44 ± 0.27"),
    "cvt-random": ("13.80 ± 0.30", "11.10 ± 0.26"),
    "cvt-adversarial": ("12.01 ± 0.11", "10.11 ± 0.15"),
}
SHIFTS = 2
OF_FIGURE = ("vat", "cvt-vat")


@dataclass(frozen=True)
class Wanted:
    """A training: a method on one set of labelled images."""

    method: str
    subset: int
    shifts: bool

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"{self.method}{'-shifts' if self.shifts else ''}-{self.subset}"

    def overrides(self, data: Path, steps: int | None) -> dict[str, Any]:
        """The recipe keys of the run."""
        _, unlabelled, noise = METHODS[self.method]
        keys: dict[str, Any] = {
            "data.train": str(data),
            "image.labelled": self.subset,
            "image.noise": noise,
            "finetune.unlabelled": unlabelled,
            "train.seed": self.subset,
        }
        if self.shifts:
            keys |= {"image.shifts": SHIFTS, "image.flips": True}
        return keys if steps is None else {**keys, "image.steps": steps}


def planned(methods: list[str], subsets: list[int], shifts: list[bool]) -> list[Wanted]:
    """The trainings, one set of labels after another, so that a table is soon half full."""
    every = []
    for subset in subsets:
        for moved in shifts:
            every += [Wanted(method, subset, moved) for method in methods]
    return every
