"""Labels flipped at random, and how many of them `tasklm check RUN --influence` lists first.

    python benchmarks/flipped_labels.py tasks/agnews/train.jsonl.gz tasks/scierc/train.jsonl.gz
--most 5000

The judgement reads the examples, their labels and a vocabulary; of a run that is all it reads. Here
the vocabulary is learnt from the examples alone. Self-influence, the squared length of an example's
own gradient, is the peer, on the same held-out heads.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

from tasklm.influence.label_check import features_of, held_out, self_influences, spoken_against
from tasklm.recipe.data_sections import Data, Kind
from tasklm.recipe.model_sections import Tokens
from tasklm.tasks.classify import Classify
from tasklm.tasks.examples import Example
from tasklm.tasks.readers.splits import read_splits
from tasklm.tokens.tokenizer import train_vocabulary, vocabulary_size

FLIPPED, LISTED = (
    0.05,
    0.1,
)  # share of the labels that are flipped, and of the examples that count as listed first


def main() -> None:
    """Prints a row for each file and draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", help="labelled training files")
    parser.add_argument(
        "--most", type=int, default=5000, help="examples taken of each file, drawn at random"
    )
    parser.add_argument(
        "--draws", type=int, default=3, help="times that labels are flipped, each time others"
    )
    options = parser.parse_args()
    print(
        "| file | examples | classes | draw | found | "
        "by self-influence |\n|---|---|---|---|---|---|"
    )
    for file in options.files:
        train = read_splits(Data(train=file)).train
        chosen = np.sort(np.random.default_rng(0).permutation(len(train))[: options.most])
        for draw in range(1, options.draws + 1):
            print(_row(Path(file), [train[number] for number in chosen], draw), flush=True)


def _row(file: Path, examples: list[Example], draw: int) -> str:
    task = Classify.from_examples(examples, Kind())
    random = np.random.default_rng(draw)
    flipped = np.sort(random.permutation(len(examples))[: round(FLIPPED * len(examples))])
    for number in flipped:
        others = [label for label in task.labels if label != str(examples[number].label)]
        examples[number] = replace(examples[number], label=others[random.integers(len(others))])
    texts = [example.text for example in examples]
    vocabulary = train_vocabulary(
        [texts], Tokens(), vocabulary_size(sum(len(text.split()) for text in texts))
    )
    features = features_of(vocabulary.encode(texts))
    targets = np.array([task.labels.index(str(example.label)) for example in examples])
    judged = held_out(features, targets, len(task.labels))
    first = round(LISTED * len(examples))
    by_others = spoken_against(judged.logits, targets)
    by_itself = self_influences(features, judged.probabilities, targets)
    found = [
        len(np.intersect1d(np.argsort(-scores, kind="stable")[:first], flipped)) / len(flipped)
        for scores in (by_others, by_itself)
    ]
    counts = f"{len(examples):,} | {len(task.labels)} | {draw}"
    return f"| {file.parent.name} | {counts} | {found[0]:.0%} | {found[1]:.0%} |"


if __name__ == "__main__":
    main()
