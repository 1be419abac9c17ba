"""A first recipe for the user's own data, with what was detected noted beside each key."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

from tasklm.budget.rules import LONGEST_ON_GPU, TOKENS_PER_RARE_WORD, default_k, row_length
from tasklm.corpus.sources import find_files
from tasklm.corpus.words import count_words
from tasklm.errors import DataError, RunError
from tasklm.recipe.data_sections import Data
from tasklm.recipe.schema import Recipe
from tasklm.recipe.toml import absolute, dump
from tasklm.storage.files import write_text
from tasklm.tasks.base import TASKS
from tasklm.tasks.examples import Splits
from tasklm.tasks.marks import usual_marks
from tasklm.tasks.readers.formats import recognise
from tasklm.tasks.readers.splits import read_splits, resolved


def starting_recipe(recipe: Recipe, path: Path) -> list[str]:
    """Writes the commented recipe to `path`, which must not exist; returns the notes."""
    if path.exists():
        raise RunError(
            f"{path} already exists and may contain your changes. Name another file with --to, or "
            "delete it."
        )
    data = resolved(recipe.data)
    splits = read_splits(data)
    words = sorted(len(example.text.split()) for example in splits.train)
    typical, longest = words[len(words) // 2], words[int(0.99 * (len(words) - 1))]
    length = row_length([count_words(example.text) for example in splits.train], LONGEST_ON_GPU)
    files = find_files(data.corpus) if data.corpus else []
    total = sum(file.stat().st_size for file in files)
    metric, why = _metric(splits, data, recipe)
    marks = recipe.kind.marks
    if marks is None:  # auto where there are none: more examples may have them
        texts = [example for example in splits.train if isinstance(example.label, str)]
        marks = usual_marks(texts) or None
    sections: dict[str, dict[str, Any]] = {
        "data": dataclasses.asdict(data),
        "kind": {"marks": marks},
        "tokens": {"length": length},
        "evaluate": {"metric": metric},
    }
    notes = {
        "data.train": _counted(splits),
        "data.dev": f"{len(splits.dev):,} examples" + ("" if data.dev else ", held out of train"),
        "data.corpus": f"{len(files):,} files, {total / 1e6:,.1f} MB on disk",
        "data.kind": _known_by(recipe.data),
        "data.text_column": f"texts of typically {typical} words, {longest} at the 99th percentile",
        "tokens.length": (
            f"fits 95 % of the texts at {TOKENS_PER_RARE_WORD} tokens per word, up to {length}"
        ),
        "select.k": f"auto gives {default_k(len(splits.train)):,} for this many examples",
        "evaluate.metric": why,
    }
    if marks:
        notes["kind.marks"] = (
            f"texts contain {' and '.join(marks)}; reading there "
            f"helps with relations; --to hf cannot export such a model, --to onnx can"
        )
    write_text(path, dump(absolute(recipe.changed(**sections)), comments=True, notes=notes))
    return [*splits.notes, *(f"{key}: {note}" for key, note in notes.items())]


def _known_by(data: Data) -> str:
    """How the kind of the task was detected."""
    if data.kind != "auto":
        return "as given"
    try:
        return recognise(Path(data.train)).why
    except DataError:
        return "one text, one label per row"


def _counted(splits: Splits) -> str:
    counts = Counter(example.label for example in splits.train if isinstance(example.label, str))
    listed = ", ".join(f"{label} {count:,}" for label, count in counts.most_common(8))
    return f"{len(splits.train):,} examples" + (
        f", {len(counts)} classes: {listed}" if counts else ""
    )


def _metric(splits: Splits, data: Data, recipe: Recipe) -> tuple[str, str]:
    """The metric and why: the kind's own, or for classes that are about equally frequent."""
    counts = Counter(example.label for example in splits.train if isinstance(example.label, str))
    if not counts:
        return TASKS.get(data.kind).from_examples(splits.train, recipe.kind).metrics[
            0
        ], "the usual one for this kind"
    balanced = max(counts.values()) / len(splits.train) < 1.5 / len(counts)
    return (
        ("accuracy", "classes are balanced") if balanced else ("macro_f1", "classes are unbalanced")
    )
