"""Made-up data of every kind of task, with texts from a few words to more than a row holds, and a
pattern to learn.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tasklm.device.machine import Machine
from tasklm.encoders.base import Shape
from tasklm.recipe.data_sections import Data, Kind
from tasklm.recipe.model_sections import Tokens
from tasklm.tasks.base import TASKS
from tasklm.tokens.examples import EncodedExamples
from tasklm.tokens.shards import Shards, write_shards
from tasklm.tokens.tokenizer import Vocabulary, train_vocabulary
from tasklm.train.context import TrainingContext

EXAMPLES, DEV, PASSAGES, WORDS = 96, 8, 200, 400
COLOURS = ("red", "green", "blue")
Row = dict[str, Any]


def _words(draw: random.Random, length: int) -> list[str]:
    """A text of few or many words: some fill just over half a row, which packs best in rows of
    twice the length; some are cut.
    """
    count = draw.choice(
        (
            4,
            length // 8,
            int(0.52 * length),
            int(0.58 * length),
            int(0.64 * length),
            int(1.5 * length),
        )
    )
    return [f"w{min(WORDS, int(draw.paretovariate(0.7)))}" for _ in range(max(4, count))]


def _classify(draw: random.Random, length: int) -> Row:
    colour = draw.choice(COLOURS)
    return {"text": " ".join([colour, *_words(draw, length)]), "label": colour}


def _multilabel(draw: random.Random, length: int) -> Row:
    colours = draw.sample(COLOURS, draw.randint(1, 2))
    return {"text": " ".join([*colours, *_words(draw, length)]), "labels": colours}


def _regress(draw: random.Random, length: int) -> Row:
    number = draw.randrange(3)
    one, other = _words(draw, length // 2), _words(draw, length // 2)
    return {
        "text_a": " ".join([COLOURS[number], *one]),
        "text_b": " ".join(other),
        "score": number + 0.5,
    }


def _choice(draw: random.Random, length: int) -> Row:
    """The right option is a colour, the others are not: 30 steps suffice to learn that."""
    right = draw.choice(COLOURS)
    options = [right, "w1", "w2"]
    draw.shuffle(options)
    question = draw.choice(("it is _ today", "which colour ?"))
    text = " ".join([right, *_words(draw, length)])
    answer = "ABC"[options.index(right)]
    return {"article": text, "question": question, "options": options, "answer": answer}


def _tag(draw: random.Random, length: int) -> Row:
    words = [draw.choice((word, *COLOURS)) for word in _words(draw, length)]
    return {"tokens": words, "tags": ["B-COLOUR" if word in COLOURS else "O" for word in words]}


def _span(draw: random.Random, length: int) -> Row:
    words = _words(draw, length)
    words[draw.randrange(min(len(words), length // 2))] = colour = draw.choice(COLOURS)
    text = " ".join(words)
    answers = [{"text": colour, "answer_start": f" {text} ".index(f" {colour} ")}]
    question = {"question": "which colour ?", "answers": answers, "is_impossible": False}
    if draw.random() < 0.2:
        question = {"question": "which number ?", "answers": [], "is_impossible": True}
    return {"context": text, "qas": [question]}


def _parse(draw: random.Random, length: int) -> Row:
    words = _words(draw, min(length, 192))[: length // 2]
    return {
        "tokens": words,
        "heads": [*range(2, len(words) + 1), 0],
        "deprels": ["dep"] * (len(words) - 1) + ["root"],
    }


ROWS: dict[str, Callable[[random.Random, int], Row]] = {
    "classify": _classify,
    "multilabel": _multilabel,
    "regress": _regress,
    "choice": _choice,
    "tag": _tag,
    "span": _span,
    "parse": _parse,
}


def _written(folder: Path, kind: str, rows: Sequence[Row]) -> Path:
    if kind == "span":
        path = folder / "train.json"
        path.write_text(
            json.dumps({"data": [{"title": "a", "paragraphs": list(rows)}]}), encoding="utf-8"
        )
    else:
        path = folder / "train.jsonl"
        path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return path


def training_context(
    folder: Path, kind: str, encoder: str, length: int, machine: Machine, layers: int
) -> TrainingContext:
    """Everything that both stages are made from, at a small width."""
    draw = random.Random(f"{kind} {length}")
    path = _written(folder, kind, [ROWS[kind](draw, length) for _ in range(EXAMPLES + DEV)])
    examples, _ = TASKS.get(kind).read(path, Data())
    train, dev = examples[:EXAMPLES], examples[EXAMPLES:]
    task = TASKS.get(kind).from_examples(train, Kind(stride=length // 4))
    passages = [" ".join(_words(draw, length)) for _ in range(PASSAGES)]
    vocabulary = _vocabulary([*passages, *(example.text for example in train)])
    write_shards(folder, [passages], vocabulary)
    encoded = [EncodedExamples.of(task, part, vocabulary, length) for part in (train, dev)]
    shape = Shape(
        len(vocabulary),
        layers=layers,
        width=128,
        heads=2,
        feedforward=256,
        positions=length,
        dropout=0.0,
    )
    return TrainingContext(
        encoder, shape, task, vocabulary, *encoded, Shards.open(folder), length, machine
    )


def _vocabulary(texts: Sequence[str]) -> Vocabulary:
    return train_vocabulary([texts], Tokens(), 600)
