"""The demo's data: is a sentence of SciPy's documentation intact or scrambled? The corpus is other
documentation.
"""

import json
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from platform import python_version

import pyarrow

from tasklm.demo.harvest import Document, documents, passages, versions, words
from tasklm.errors import RunError
from tasklm.storage.files import write_bytes

LABELS = {
    "intact": "the sentence as it was written",
    "scrambled": "the same words, those between the first and the last shuffled",
}
SEED = 3
TRAIN, DEV, TEST = 800, 500, 1300  # dev and test end with the module that reaches the count
FEWEST, MOST = 9, 25  # words of a sentence
RUN = 13  # consecutive words that two texts may not share (or all of the shorter text)
_KEY = 5  # words by which runs are looked up
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_PLAIN_WORD = re.compile(r"[A-Za-z-]+[,.;:]?")
_LEAST_PLAIN = 0.85  # share of plain words: the rest may be code or numbers


@dataclass(frozen=True)
class Example:
    """A sentence as written and as shown, and its source."""

    sentence: str
    text: str
    label: str
    source: str

    def row(self) -> dict[str, str]:
        """Return the example as the data files hold it."""
        return {"text": self.text, "label": self.label, "source": self.source}


class Runs:
    """The word runs of some texts, to find other texts that share one."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._tails: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
        for text in texts:
            own = words(text)
            length = min(RUN, len(own))
            for start in range(len(own) - length + 1):
                run = tuple(own[start : start + length])
                self._tails.setdefault(run[:_KEY], set()).add(run[_KEY:])

    def shared_by(self, others: list[str]) -> bool:
        """Say whether the words of a text hold one of the runs."""
        for start in range(len(others) - _KEY + 1):
            tails = self._tails.get(tuple(others[start : start + _KEY]))
            if tails is not None:
                after = tuple(others[start + _KEY : start + RUN])
                if any(after[: len(tail)] == tail for tail in tails):
                    return True
        return False


def build(folder: Path) -> dict[str, object]:
    """Write train, dev and test, the corpus and ABOUT.json into the folder; return what ABOUT.json
    says.
    """
    folder.mkdir(parents=True, exist_ok=True)
    harvest = list(documents())
    train, dev, test = _split(_examples(harvest))
    held_out = dev + test
    runs = Runs(example.sentence for example in held_out)
    corpus, duplicates, dropped = _corpus(harvest, {example.source for example in held_out}, runs)
    for name, part in (("train", train), ("dev", dev), ("test", test)):
        write_bytes(folder / f"{name}.jsonl", _lines(example.row() for example in part))
    write_bytes(
        folder / "corpus.jsonl.zst", pyarrow.compress(_lines(corpus), codec="zstd", asbytes=True)
    )
    about: dict[str, object] = {
        "task": "Is a sentence of SciPy's documentation intact, or are its words scrambled?",
        "labels": LABELS,
        "split": (
            "by source module; no run of 13 words (or "
            "all of a shorter text) is shared across splits"
        ),
        "examples": {
            name: len(part) for name, part in (("train", train), ("dev", dev), ("test", test))
        },
        "per_label": {
            name: dict(sorted(Counter(example.label for example in part).items()))
            for name, part in (("train", train), ("dev", dev), ("test", test))
        },
        "corpus": {
            "what": (
                "docstrings, comments, README and licence "
                "texts, outside the modules of dev and test"
            ),
            "passages": len(corpus),
            "words": sum(len(row["text"].split()) for row in corpus),
            "dropped_as_duplicates": duplicates,
            "dropped_for_sharing_a_run_with_dev_or_test": dropped,
        },
        "python": python_version(),
        "versions": versions(),
    }
    write_bytes(folder / "ABOUT.json", (json.dumps(about, indent=2) + "\n").encode())
    return about


def _examples(harvest: list[Document]) -> list[Example]:
    """Every prose sentence of SciPy's documentation once, half of them scrambled."""
    chance = random.Random(SEED)
    seen: set[str] = set()
    examples: list[Example] = []
    for document in harvest:
        if not (document.source.startswith("scipy/") and document.source.endswith(".py")):
            continue
        for sentence in _sentences(document.text):
            key = " ".join(words(sentence))[:60]  # sentences that begin alike count as the same
            if key in seen:
                continue
            seen.add(key)
            text, label = sentence, "intact"
            if chance.random() < 0.5:
                text, label = _scrambled(sentence, chance), "scrambled"
            examples.append(Example(sentence, text, label, document.source))
    return examples


def _sentences(text: str) -> Iterator[str]:
    """Yield the sentences of plain prose in a documentation text."""
    for passage in passages(text, longest=400):
        for sentence in _SENTENCE_END.split(passage):
            parts = sentence.split()
            plain = sum(_PLAIN_WORD.fullmatch(part) is not None for part in parts)
            whole = sentence[:1].isupper() and sentence.endswith(".")
            if whole and FEWEST <= len(parts) <= MOST and plain >= _LEAST_PLAIN * len(parts):
                yield sentence


def _scrambled(sentence: str, chance: random.Random) -> str:
    """Return the sentence with the words between the first and the last in another order."""
    first, *inner, last = sentence.split()
    shuffled = list(inner)
    while shuffled == inner:
        chance.shuffle(shuffled)
    return " ".join([first, *shuffled, last])


def _split(examples: list[Example]) -> tuple[list[Example], list[Example], list[Example]]:
    """Give whole modules, in seeded order, to test, dev and train; later parts lose what shares a
    run.
    """
    chance = random.Random(SEED)
    modules = sorted({example.source for example in examples})
    chance.shuffle(modules)
    place = {module: index for index, module in enumerate(modules)}
    ordered = sorted(examples, key=lambda example: place[example.source])
    test_end = _module_end(ordered, TEST)
    dev_end = _module_end(ordered, test_end + DEV)
    test = ordered[:test_end]
    in_test = Runs(example.sentence for example in test)
    dev = [
        example
        for example in ordered[test_end:dev_end]
        if not in_test.shared_by(words(example.sentence))
    ]
    held_out = Runs(example.sentence for example in test + dev)
    rest = [
        example for example in ordered[dev_end:] if not held_out.shared_by(words(example.sentence))
    ]
    if len(rest) < TRAIN:
        raise RunError(
            f"only {len(rest)} sentences were found for training, but {TRAIN} are needed: the "
            "installed scipy is documented differently. Install scipy 1.17 and try again."
        )
    chance.shuffle(rest)
    return rest[:TRAIN], dev, test


def _module_end(ordered: list[Example], count: int) -> int:
    """Return the first index at or after `count` at which another module begins."""
    while 0 < count < len(ordered) and ordered[count].source == ordered[count - 1].source:
        count += 1
    return count


def _corpus(
    harvest: list[Document], held_out: set[str], runs: Runs
) -> tuple[list[dict[str, str]], int, int]:
    """Return the corpus rows, and how many duplicates and contaminated passages were left out."""
    rows: list[dict[str, str]] = []
    seen: set[str] = set()
    duplicates = dropped = 0
    for document in harvest:
        if document.source in held_out:
            continue
        for passage in passages(document.text):
            own = words(passage)
            key = " ".join(own)
            if key in seen:
                duplicates += 1
            elif runs.shared_by(own):
                dropped += 1
            else:
                rows.append({"id": f"p{len(rows):06d}", "text": passage, "source": document.source})
            seen.add(key)
    return rows, duplicates, dropped


def _lines(rows: Iterable[dict[str, str]]) -> bytes:
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    return "".join(lines).encode("utf-8", "replace")
