"""A first recipe for the user's own images, with what was found noted beside each key."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tasklm.artifacts import Artefacts
from tasklm.errors import RunError
from tasklm.images.data_set import read_images
from tasklm.images.settings import check_settings, own_text, with_kind
from tasklm.pipeline.inputs import Inputs
from tasklm.recipe.schema import Recipe
from tasklm.recipe.toml import absolute, dump
from tasklm.storage.files import write_text
from tasklm.storage.scratch import Scratch
from tasklm.tracking import Tracker


def starting_recipe(recipe: Recipe, path: Path) -> list[str]:
    """Writes the commented recipe to `path`, which must not exist; returns the notes."""
    if path.exists():
        problem = f"{path} already exists and may contain your changes"
        raise RunError(f"{problem}. Name another file with --to, or delete it.")
    recipe = with_kind(recipe)
    check_settings(recipe)
    with Scratch() as folder:
        data = read_images(recipe, Artefacts(folder), Inputs(), Tracker())
    counts = Counter(data.classes[number] for number in data.train.labels.tolist())
    listed = ", ".join(f"{label} {count:,}" for label, count in counts.most_common(8))
    total = len(data.labelled)
    notes = {
        "data.train": f"{total:,} labelled images, {len(counts)} classes: {listed}",
        "data.kind": "PNG or JPEG files, or an archive of arrays",
        "image.size": data.notes[0],
    }
    if data.dev is not None:
        held = "" if recipe.data.dev else ", held out of train"
        notes["data.dev"] = f"{len(data.dev):,} images{held}"
    balanced = max(counts.values()) < 1.5 * total / len(counts)
    metric = "accuracy" if balanced else "macro_f1"
    notes["evaluate.metric"] = f"classes are {'balanced' if balanced else 'unbalanced'}"
    changed = recipe.changed(image={"size": data.size}, evaluate={"metric": metric})
    write_text(path, own_text(dump(absolute(changed), comments=True, notes=notes)))
    return [f"{key}: {note}" for key, note in notes.items()]
