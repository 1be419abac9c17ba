"""A first recipe for somebody's own data, with what was found written beside each key."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from tasklm.budget import default_k
from tasklm.corpus.sources import find_files
from tasklm.recipe import Recipe
from tasklm.recipe_files import absolute, dump
from tasklm.runs import write_text
from tasklm.tasks.reading import read_splits
from tasklm.tasks.texts import find_columns


def starting_recipe(recipe: Recipe, path: Path) -> list[str]:
    """Writes the commented recipe to `path`; returns what was found."""
    data = recipe.data
    columns = find_columns(Path(data.train), data)
    splits = read_splits(data)
    counts = Counter(example.label for example in splits.train)
    words = sorted(len(example.text.split()) for example in splits.train)
    typical, longest = words[len(words) // 2], words[int(0.99 * (len(words) - 1))]
    length = next((size for size in (64, 128, 256) if 1.6 * words[int(0.95 * (len(words) - 1))] + 2 <= size), 512)
    files = find_files(data.corpus) if data.corpus else []
    total = sum(file.stat().st_size for file in files)
    balanced = max(counts.values()) / len(splits.train) < 1.5 / len(counts)
    sections: dict[str, dict[str, Any]] = {
        "data": {"text_column": ",".join(columns.texts), "label_column": columns.label},
        "tokens": {"length": length},
        "evaluate": {"metric": "accuracy" if balanced else "macro_f1"},
    }
    notes = {
        "data.train": f"{len(splits.train):,} examples, {len(counts)} classes: "
        + ", ".join(f"{label} {count:,}" for label, count in counts.most_common(8)),
        "data.dev": f"{len(splits.dev):,} examples" + ("" if data.dev else ", held out of train"),
        "data.corpus": f"{len(files):,} files, {total / 1e6:,.1f} MB on disk",
        "data.kind": "one text, one label per row",
        "data.text_column": f"texts of {typical} words typically, {longest} at the 99th percentile",
        "tokens.length": f"holds 95 % of the texts at 1.6 tokens per word, as far as {length} goes",
        "select.k": f"auto gives {default_k(len(splits.train)):,} for this many examples",
        "evaluate.metric": "classes are balanced" if balanced else "classes are unbalanced",
    }
    write_text(path, dump(absolute(recipe).changed(**sections), comments=True, notes=notes))
    return [*splits.notes, *(f"{key}: {note}" for key, note in notes.items())]
