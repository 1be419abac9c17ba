"""A small data set of every kind of task, each in another format, with a pattern that can be
learnt.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conftest import labelled, sentences, write_jsonl

ASKED = "the cat hears cold water number 5 ."
LONG = "the cat sees" + " the long road" * 15  # of more tokens than a row has
THINGS = {
    "ball": "red",
    "field": "green",
    "water": "cold",
    "road": "long",
    "house": "empty",
}  # thing → what stands before it
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Case:
    """A kind of task: how its data is made and written, and what is to be found in the results."""

    kind: str
    suffix: str  # of its files
    write: Callable[[Path, Rows], Path]
    rows: Callable[[int, int], Rows]  # (how many, seed) → rows
    why: str  # by what the kind is known
    metrics: list[str]
    baselines: list[str]
    asked: str  # what `predict` is given
    spoil: Callable[[Rows], Rows]  # training rows with a fault that the kind knows …
    fault: tuple[str, str, str]  # … as level, check, and words of the message
    options: dict[str, str] = field(default_factory=dict)


def _sets(count: int, seed: int) -> Rows:
    found = sentences(count, seed)
    return [
        {"text": text, "labels": [name for name in ("cat", "road", "water") if name in text]}
        for text in found
    ]


def _pairs(count: int, seed: int) -> Rows:
    """The score is high where both sentences have water or music in them, and low where neither
    has.
    """
    ones, others = labelled(count, seed), labelled(count, seed + 100)
    return [
        {
            "sentence1": one["text"],
            "sentence2": other["text"],
            "score": 0.5 + 1.75 * [one["label"], other["label"]].count("yes"),
        }
        for one, other in zip(ones, others, strict=True)
    ]


def _choices(count: int, seed: int) -> Rows:
    draw, rows = random.Random(seed), []
    for text in sentences(count, seed):
        options = [*draw.sample(sorted(THINGS), 2), "music"]
        draw.shuffle(options)
        rows.append(
            {
                "article": text,
                "question": "what can be heard ?",
                "options": options,
                "answer": "ABC"[options.index("music")],
            }
        )
    return rows


def _tagged(count: int, seed: int) -> Rows:
    """The last sentence does not fit into a row."""
    rows = []
    for text in [*sentences(count - 1, seed), f"{LONG} number {seed} ."]:
        words = text.split()
        tags = ["O"] * len(words)
        for place, word in enumerate(words):
            if THINGS.get(word) == words[place - 1]:
                tags[place - 1 : place + 1] = ["B-THING", "I-THING"]
            elif word in ("cat", "dog", "bird"):
                tags[place] = "B-ANIMAL"
        rows.append({"tokens": words, "tags": tags})
    return rows


def _write_columns(path: Path, rows: Rows) -> Path:
    blocks = [
        "".join(f"{word} {tag}\n" for word, tag in zip(row["tokens"], row["tags"], strict=True))
        for row in rows
    ]
    path.write_text("\n".join(blocks), encoding="utf-8")
    return path


def _questions(count: int, seed: int) -> Rows:
    """The number is asked for, or, in every fourth question, something that
    the text does not say.
    """
    found = []
    for place, text in enumerate(sentences(count, seed)):
        number = text.split()[-2]
        answers = [{"text": number, "answer_start": text.index(number)}]
        asked = (
            {"question": "which number ?", "answers": answers}
            if place % 4
            else {"question": "which colour ?", "answers": []}
        )
        found.append({"context": text, **asked})
    return found


def _write_squad(path: Path, rows: Rows) -> Path:
    paragraphs = []
    for row in rows:
        question = {
            "question": row["question"],
            "answers": row["answers"],
            "is_impossible": not row["answers"],
        }
        paragraphs.append({"context": row["context"], "qas": [question]})
    path.write_text(
        json.dumps({"data": [{"title": "a", "paragraphs": paragraphs}]}), encoding="utf-8"
    )
    return path


def _trees(count: int, seed: int) -> Rows:
    """The verb is the root; what stands before it and after it hangs on the word after, or on the
    verb.
    """
    rows = []
    for text in sentences(count, seed):
        words = text.split()
        verb = next(
            place
            for place, word in enumerate(words, 1)
            if word.endswith("s") and word not in ("this",)
        )
        last = words.index("number") + 1
        arcs = []
        for place in range(1, len(words) + 1):
            if place == verb:
                arcs.append((0, "root"))
            elif place == len(words):
                arcs.append((verb, "punct"))
            elif place in (verb - 1, last - 1, last):
                arcs.append((verb, "nsubj" if place < verb else "obj" if place < last else "obl"))
            else:
                arcs.append((last, "nummod") if place > last else (place + 1, "det"))
        rows.append(
            {
                "tokens": words,
                "heads": [head for head, _ in arcs],
                "deprels": [name for _, name in arcs],
            }
        )
    return rows


def _write_conllu(path: Path, rows: Rows) -> Path:
    blocks = []
    for row in rows:
        words = zip(row["tokens"], row["heads"], row["deprels"], strict=True)
        lines = (
            f"{place}\t{word}\t_\t_\t_\t_\t{head}\t{name}\t_\t_\n"
            for place, (word, head, name) in enumerate(words, 1)
        )
        blocks.append("# text = " + " ".join(row["tokens"]) + "\n" + "".join(lines))
    path.write_text("\n".join(blocks), encoding="utf-8")
    return path


def _changed(rows: Rows, **values: Any) -> Rows:
    """The rows, the first of which has other values."""
    return [{**rows[0], **values}, *rows[1:]]


def _backwards(text: str) -> str:
    """Every word from its end to its beginning, and a mark of exclamation."""
    return " ".join(word[::-1] for word in text.removesuffix(" .").split()).capitalize() + "!"


def _texts(count: int, seed: int) -> Rows:
    return [{"source": text, "target": _backwards(text)} for text in sentences(count, seed)]


CASES = [
    Case(
        "classify",
        ".jsonl",
        write_jsonl,
        labelled,
        "'text' with labels 'label'",
        ["macro_f1", "micro_f1", "accuracy", "weighted_f1", "matthews", "f1"],
        ["majority", "TF-IDF + linear"],
        ASKED,
        lambda rows: _changed(rows, label="perhaps"),
        ("warning", "rare labels", ("fewer than 5 training examples: 'perhaps'")),
    ),
    Case(
        "multilabel",
        ".jsonl",
        write_jsonl,
        _sets,
        "'text' with lists of labels 'labels'",
        ["micro_f1", "macro_f1", "accuracy"],
        ["most frequent labels", "TF-IDF + linear"],
        ASKED,
        lambda rows: _changed(rows, labels=["fog"]),
        ("warning", "rare labels", ("fewer than 5 training examples: 'fog'")),
    ),
    Case(
        "regress",
        ".jsonl",
        write_jsonl,
        _pairs,
        ("'sentence1' and 'sentence2' with numbers 'score'"),
        ["spearman", "pearson"],
        ["mean", "TF-IDF + ridge"],
        json.dumps({"sentence1": ASKED, "sentence2": ASKED}),
        lambda rows: [{**row, "score": 0.5} for row in rows],
        ("error", "labels", ("all 48 training labels are 0.5")),
        {"select__method": "bm25,influence"},
    ),
    Case(
        "choice",
        ".jsonl",
        write_jsonl,
        _choices,
        ("columns 'article', 'question', 'options' (a list) and 'answer' (the right one)"),
        ["accuracy"],
        ["most frequent option", "most words in common", "words in common + linear"],
        json.dumps(
            {"article": ASKED, "question": "what can be heard ?", "options": ["music", "road"]}
        ),
        lambda rows: _changed(rows, options=["music", "road", "road"], answer="A"),
        ("warning", "repeated options", "have the same option twice"),
        {"select__method": "bm25,influence"},
    ),
    Case(
        "tag",
        ".conll",
        _write_columns,
        _tagged,
        "words and tags in columns, by the file's name",
        ["entity_f1", "accuracy"],
        ["majority", ("most frequent tag of the word"), "words around + linear"],
        ASKED,
        lambda rows: _changed(rows, tokens=["the", "ball"], tags=["O", "I-THING"]),
        ("warning", "tag sequences", ("break the rules of BIO")),
        {"select__method": "bm25,influence"},
    ),
    Case(
        "span",
        ".json",
        _write_squad,
        _questions,
        "SQuAD's layout: paragraphs with questions",
        ["answer_f1", "exact_match"],
        ["majority", "best sentence", "words in common + linear"],
        json.dumps({"question": "which number ?", "context": ASKED}),
        lambda rows: _changed(rows, answers=[{"text": "nowhere", "answer_start": 3}]),
        ("warning", "answers in train", "have an answer that is not in their text"),
        {"select__method": "bm25,influence", "finetune__epochs": "40"},
    ),
    Case(
        "parse",
        ".conllu",
        _write_conllu,
        _trees,
        "CoNLL-U, by the file's name",
        ["las", "uas"],
        ["head is the word after", "most frequent arc of the word"],
        ASKED,
        lambda rows: _changed(rows, tokens=["cat", "dog"], heads=[2, 1], deprels=["dep", "dep"]),
        ("error", "trees", "do not form a tree with one root"),
    ),
    Case(
        "translate",
        ".jsonl",
        write_jsonl,
        _texts,
        "'source' with texts 'target'",
        ["bleu", "chrf", "bleu_tokenised"],
        ["source as it is", "text of the nearest source", "word for word"],
        ASKED,
        lambda rows: [{**row, "target": row["source"]} for row in rows],
        ("warning", "copies", "48 of 48 texts of train are copies of their sources"),
        {"finetune__epochs": "30"},
    ),
]
