"""How many tokens the examples of tasks have, each under a vocabulary of its own: numbers for
`benchmarks/attention.py --lengths`.

python benchmarks/lengths.py TASKS --out lengths.json       # TASKS/NAME/train.jsonl.gz with a text column, or text_a and text_b
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import sys
from pathlib import Path

from tasklm.errors import DataError, TaskLMError
from tasklm.recipe.model_sections import Tokens
from tasklm.storage.files import write_json
from tasklm.tokens.tokenizer import train_vocabulary, vocabulary_size


def main() -> None:
    """Writes {task: lengths} of the tasks that have text columns and says which have none."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tasks", type=Path, help="folder of folders with a train.jsonl.gz each")
    parser.add_argument("--out", type=Path, required=True, help="the JSON file to write")
    parser.add_argument("--examples", type=int, default=2000, help="first examples of each task")
    options = parser.parse_args()
    found = {}
    for file in sorted(options.tasks.glob("*/train.jsonl.gz")):
        texts = read_texts(file, options.examples)
        if texts:
            found[file.parent.name] = count_tokens(texts)
        said = f"{len(texts)} examples" if texts else "left out: neither text nor text_a and text_b"
        print(f"{file.parent.name}: {said}", file=sys.stderr, flush=True)
    if not found:
        raise DataError(
            "no task has a train.jsonl.gz with text",
            file=options.tasks,
            remedy="Name the folder above the tasks' folders.",
        )
    write_json(options.out, found)


def read_texts(file: Path, most: int) -> list[list[str]]:
    """The one or two texts of each of the first examples; none where there are no such columns."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in itertools.islice(lines, most)]
    columns = next(
        (
            names
            for names in (["text"], ["text_a", "text_b"])
            if rows and all(name in rows[0] for name in names)
        ),
        [],
    )
    return [[row[name] for name in columns] for row in rows] if columns else []


def count_tokens(texts: list[list[str]]) -> list[int]:
    """The tokens of every example, [CLS] and a [SEP] after each text included."""
    parts = list(itertools.chain.from_iterable(texts))
    size = vocabulary_size(sum(len(part.split()) for part in parts))
    vocabulary = train_vocabulary([parts], Tokens(), size)
    return [
        1 + sum(len(numbers) + 1 for numbers in vocabulary.encode(example)) for example in texts
    ]


if __name__ == "__main__":
    try:
        main()
    except TaskLMError as error:
        sys.exit(str(error))
