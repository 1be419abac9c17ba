"""Which keys of a recipe images have: all others would be without effect, and are refused."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from tasklm.errors import DataError, RecipeError
from tasklm.images.consistency import Studies
from tasklm.recipe.image import IMAGE
from tasklm.recipe.schema import Recipe, section_types
from tasklm.registry import nearest
from tasklm.run_folder import SUPERVISED

OWN = {
    "data": ("train", "dev", "test", "unlabelled", "share", "kind", "dev_share", "leaks"),
    "train": ("seed", "checkpoint_seconds", "keep", "non_finite"),
    "finetune": (
        *("unlabelled", "seeds", "batch", "learning_rate", "optimiser", "average"),
        *("weight_decay", "clip", "beta1", "beta2", "epsilon", "momentum", "sgd_momentum"),
    ),
    "evaluate": ("metric", "bootstrap", "confidence", "baselines", "compare"),
    "budget": ("minutes",),
}
_KEY = re.compile(r"(?:# )?([a-z_0-9]+) = ")  # commented out where it is auto
WHOLE = ("image", "hardware")
REASONS = {
    "select": "there is no text to select",
    "tokens": "there are no tokens",
    "model": "the network has image.width alone",
    "several": "a model of images has one task",
    "distill": "no model teaches one of images",
    "kind": "the kinds of these keys are of text",
    "train": "there is no stage 1",
}


def check_settings(recipe: Recipe) -> None:
    """Refuses keys that mean nothing for images, all at once, before any work is done."""
    usual, problems = Recipe(), list[str]()
    for name, cls in section_types().items():
        for entry in dataclasses.fields(cls):
            value = getattr(getattr(recipe, name), entry.name)
            usual_value = getattr(getattr(usual, name), entry.name)
            if not is_own(name, entry.name) and value != usual_value:
                reason = REASONS.get(name, "it is for text")
                problem = f"the key does not apply to images ({reason})"
                problems.append(f"{name}.{entry.name}: {problem}; leave it out")
    for name in recipe.evaluate.compare:
        if name != SUPERVISED:
            close = nearest(name, [SUPERVISED])
            problems.append(f"evaluate.compare = {name!r}: for images there is supervised{close}")
    if problems:
        raise RecipeError(problems)
    studies = Studies.of(recipe.finetune.unlabelled, recipe.image)
    if SUPERVISED in recipe.evaluate.compare and not studies.students:
        problem = "finetune.unlabelled is none, so the model is that already"
        raise RecipeError([f"evaluate.compare = supervised: {problem}; leave it out"])
    if not recipe.data.train:
        raise DataError("there are no training images", remedy="Give them: tasklm fit FOLDER.")


def is_own(section: str, name: str) -> bool:
    """Whether images have a key."""
    return section in WHOLE or name in OWN.get(section, ())


def own_text(text: str) -> str:
    """A recipe as text without the keys, with their comments, that images do not have."""
    section, lines, waiting = "", list[str](), list[str]()
    for line in text.splitlines():
        waiting.append(line)
        name = _KEY.match(line)
        if line.startswith("["):
            section = line.strip("[]")
            lines += waiting if section in WHOLE or section in OWN else []
            waiting = []
        elif name is not None:
            lines += waiting if is_own(section, name[1]) else []
            waiting = []
        elif not line:
            lines += waiting if section in WHOLE or section in OWN else []
            waiting = []
    return "\n".join([*lines, ""])


def with_kind(recipe: Recipe) -> Recipe:
    """The recipe with its kind filled in."""
    return recipe.changed(data={"kind": IMAGE})


def supervised(recipe: Recipe) -> Recipe:
    """The recipe without anything that learns from images without labels."""
    changed: dict[str, Any] = {"image": {"noise": "auto"}, "finetune": {"unlabelled": "none"}}
    return recipe.changed(**changed)
