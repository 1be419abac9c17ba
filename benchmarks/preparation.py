"""Where the time before training goes: seconds, and CPU seconds of all processes, of every step up
to the tokens, and of the baseline.

python benchmarks/preparation.py recipe.toml --folder scratch               # all cores
taskset -c 0-3 python benchmarks/preparation.py recipe.toml --folder scratch --out four-cores.json

Nothing is kept from one run to the next: the folder must not exist. Equal digests mean equal
results.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tasklm.artifacts import Artefacts
from tasklm.corpus.corpus_text import local_text
from tasklm.corpus.decontaminate import contaminated
from tasklm.corpus.store import kept_store
from tasklm.errors import TaskLMError
from tasklm.recipe.schema import Recipe
from tasklm.recipe.toml import load
from tasklm.select.base import SELECTORS, Workplace, bytes_of, read_selection_texts, write_selection
from tasklm.select.near_duplicates import without_near_duplicates
from tasklm.storage.files import file_digest, write_json
from tasklm.tasks.audit import audit_splits
from tasklm.tasks.base import TASKS
from tasklm.tasks.readers.splits import read_splits, resolved
from tasklm.tokens.shards import write_shards
from tasklm.tokens.tokenizer import train_vocabulary
from tasklm.tracking import SILENT


class Clock:
    """Times steps and prints each as it ends."""

    def __init__(self) -> None:
        self.steps: dict[str, dict[str, Any]] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[dict[str, Any]]:
        """Times what happens inside; what is put in the dictionary is kept with it."""
        found: dict[str, Any] = {}
        started, used = time.perf_counter(), cpu_seconds()
        yield found
        self.steps[name] = {
            "seconds": time.perf_counter() - started,
            "cpu_seconds": cpu_seconds() - used,
            **found,
        }
        told = " ".join(f"{key} {value}" for key, value in found.items())
        print(
            (
                f"{name:32} {self.steps[name]['seconds']:8.1f} s "
                f"{self.steps[name]['cpu_seconds']:8.1f} CPU s   {told}"
            ),
            flush=True,
        )


def cpu_seconds() -> float:
    """The CPU seconds of this process, of those it started and has seen end, and of those that
    still run (on Linux).
    """
    total = sum(os.times()[:4])
    for children in Path("/proc/self/task").glob("*/children"):
        for child in children.read_text().split():
            try:
                fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):  # it ended meanwhile
                continue
            total += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return total


def digest_of(*arrays: Any) -> str:
    """A short hash of arrays, or of what can be written as JSON."""
    hasher = hashlib.blake2b(digest_size=8)
    for array in arrays:
        hasher.update(
            np.ascontiguousarray(array).tobytes()
            if isinstance(array, np.ndarray)
            else json.dumps(array).encode()
        )
    return hasher.hexdigest()


def prepare(recipe: Recipe, folder: Path, clock: Clock) -> None:
    """Does the steps of a run before training, one after another, and then the baseline."""
    data, settings = recipe.data, recipe.select
    cache = Artefacts(folder / "cache")
    with clock.step("read and audit the task") as found:
        splits = read_splits(data)
        found["digest"] = digest_of(
            [[finding.message, finding.examples] for finding in audit_splits(splits, data)]
        )
    texts = {
        name: [text for example in part for text in example.texts]
        for name, part in splits.named().items()
    }
    with clock.step("read the corpus") as found:
        store, _, _ = kept_store(local_text(data), cache, SILENT)
        found |= {"passages": len(store), "digest": file_digest(store.folder / "text.bin")[:16]}
    with clock.step("look for dev and test text") as found:
        held_out = {name: texts[name] for name in ("dev", "test") if name in texts}
        contamination = contaminated(store, held_out, data.contamination_words, SILENT)
        found["digest"] = digest_of(contamination.banned, contamination.examples)
    selector = SELECTORS.get(settings.method)(settings)
    selector.fit(texts["train"], [str(example.label) for example in splits.train])
    (folder / "scratch").mkdir()
    place = Workplace(cache, folder / "scratch", SILENT, bytes_of(settings.memory))
    with clock.step(f"score by {settings.method}") as found:
        ranking = selector.score(store, contamination.banned, settings.k or 5000, place)
        found["digest"] = digest_of(ranking.offsets, ranking.passages, ranking.scores)
    with clock.step("choose"):
        chosen = selector.choose(ranking, None)
    with clock.step("leave out near duplicates") as found:
        chosen = without_near_duplicates(
            chosen, store, settings.near_duplicates, settings.passages, SILENT
        )
        found |= {
            "passages": len(chosen.passages),
            "digest": digest_of(chosen.passages, chosen.scores, chosen.matched_queries),
        }
    selected = folder / "selected.parquet"
    with clock.step("write the selection"):
        write_selection(selected, store, chosen)
    with clock.step("learn the vocabulary") as found:
        batches = (
            batch
            for source in ([texts["train"]], read_selection_texts(selected))
            for batch in source
        )
        vocabulary = train_vocabulary(batches, recipe.tokens, recipe.tokens.vocabulary or 16_000)
        found["digest"] = digest_of(vocabulary.tokenizer.to_str())
    with clock.step("tokenize") as found:
        write_shards(folder, read_selection_texts(selected), vocabulary)
        found["digest"] = file_digest(folder / "tokens.bin")[:16]
    with clock.step("baselines") as found:
        task = TASKS.get(resolved(recipe.data).kind).from_examples(splits.train, recipe.kind)
        held = {name: part for name, part in splits.named().items() if name != "train"}
        metric = task.metrics[0] if recipe.evaluate.metric == "auto" else recipe.evaluate.metric
        fitted = task.fit_wide(splits.train, splits.dev, metric)
        found["digest"] = digest_of(
            task.baselines(splits.train, held, metric, fitted and fitted.wide)
        )


def main() -> None:
    """Prints the table, and writes it as JSON where asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--folder", type=Path, required=True, help="a folder to make and work in")
    parser.add_argument("--out", type=Path, help="a JSON file to write")
    options = parser.parse_args()
    options.folder.mkdir(parents=True)
    clock = Clock()
    prepare(load(options.recipe, {}), options.folder, clock)
    if options.out:
        write_json(options.out, clock.steps)


if __name__ == "__main__":
    try:
        main()
    except TaskLMError as error:
        sys.exit(str(error))
