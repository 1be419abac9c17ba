"""A whole run put together from well-known parts, in a process of its own:
`python -m whole_run_peers.peer RECIPE.toml FOLDER THREADS`.

pyarrow reads, bm25s selects with the task's texts as queries, tokenizers learns the vocabulary, and
transformers.Trainer trains BertForMaskedLM and then BertForSequenceClassification.
"""

from whole_run_peers.clock import StepClock

CLOCK = StepClock()  # before the libraries, whose loading counts as it does in a command

import json  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402

from tasklm.pipeline import timeline  # noqa: E402
from tasklm.recipe.schema import Recipe  # noqa: E402
from tasklm.recipe.toml import load  # noqa: E402
from whole_run_peers import reading, training  # noqa: E402

Splits = dict[str, list[tuple[str, str]]]


def run(recipe: Recipe, folder: Path, threads: int, clock: StepClock) -> dict[str, Any]:
    """The time of each step, the scores on dev and test, and how much text there was."""
    torch.set_num_threads(threads)
    splits = reading.read_splits(recipe)
    clock.keep(timeline.DATA)
    passages = reading.read_passages(recipe)
    clock.keep(timeline.CORPUS)
    queries = [text for text, _ in splits["train"]]
    selected = reading.select(passages, queries, recipe, threads)
    clock.keep(timeline.SELECTION)
    texts = [*queries, *selected]
    tokenizer = reading.learn_vocabulary(texts, recipe)
    rows = reading.pack(texts, tokenizer, recipe)
    np.save(folder / "rows.npy", rows)
    clock.keep(timeline.TOKENS)
    training.pretrain(recipe, tokenizer, folder)
    clock.keep(timeline.STAGE1)
    labels = sorted({label for _, label in splits["train"]})
    data = {
        name: training.encode(part, tokenizer, labels, recipe.tokens.rows)
        for name, part in splits.items()
    }
    trainers = [
        training.finetune(recipe, seed, tokenizer, data, folder)
        for seed in range(1, (recipe.finetune.seeds or 1) + 1)
    ]
    clock.keep(timeline.STAGE2)
    scores = {
        split: float(np.mean([training.score(one, data[split]) for one in trainers]))
        for split in ("dev", "test")
    }
    clock.keep(timeline.BASELINES)
    return {
        **scores,
        "steps": clock.steps,
        "passages": len(selected),
        "text_tokens": int(rows.size),
        "versions": training.versions(),
    }


def main() -> None:
    """Runs the recipe of a file and writes the report into the folder."""
    folder = Path(sys.argv[2])
    report = run(load(Path(sys.argv[1])), folder, int(sys.argv[3]), CLOCK)
    (folder / "report.json").write_text(json.dumps(report), encoding="utf-8")


if __name__ == "__main__":
    main()
