"""A classifier with random weights, and made-up texts to ask it about: speed does not depend on
what was learnt.
"""

from __future__ import annotations

import random
from itertools import accumulate
from pathlib import Path

import torch

from tasklm.encoders.base import ENCODERS, Shape
from tasklm.models.task_model import ModelDescription, TaskModel, save_models
from tasklm.recipe.model_sections import Tokens
from tasklm.tasks.base import TASKS
from tasklm.tokens.tokenizer import train_vocabulary

LABELS = ["business", "science", "sports", "world"]
LENGTH = 128  # tokens of a row
WORDS, SHORTEST, LONGEST = 8000, 5, 90  # distinct words; words of a text
MEAN, SPREAD = 3.0, 0.5  # of the logarithm of a text's words: half of the texts have 20 or fewer
SYLLABLES = [
    first + vowel + last
    for first in "bdfgklmnprstvz"
    for vowel in "aeiou"
    for last in ("", "n", "r", "s")
]


def made_up_texts(count: int, seed: int) -> list[str]:
    """Returns texts of words with the frequencies that words of a language have (Zipf's law)."""
    draw = random.Random(seed)
    words = ["".join(draw.choices(SYLLABLES, k=draw.choice((1, 2, 2, 3)))) for _ in range(WORDS)]
    sums = list(accumulate(1 / (rank + 2.7) for rank in range(WORDS)))
    sizes = (
        min(LONGEST, max(SHORTEST, round(draw.lognormvariate(MEAN, SPREAD)))) for _ in range(count)
    )
    return [" ".join(draw.choices(words, cum_weights=sums, k=size)) + "." for size in sizes]


def make_model(folder: Path, layers: int, width: int, seed: int) -> None:
    """Writes a classifier of the shape of ELECTRA's small ones, with a vocabulary of the made-up
    texts.
    """
    vocabulary = train_vocabulary([made_up_texts(4000, seed)], Tokens(), 4000)
    shape = Shape(len(vocabulary), layers, width, max(1, width // 64), 4 * width, LENGTH)
    torch.manual_seed(seed)
    task = TASKS.get("classify").from_dict({"kind": "classify", "labels": LABELS})
    model = TaskModel(ENCODERS.get("bert")(shape), task.head(width, 0.0))
    about = {"metric": task.metrics[0], "dev": 0.0, "seed": seed, "test": None}
    save_models(folder, ModelDescription("bert", shape, task, vocabulary, LENGTH), [model], about)
