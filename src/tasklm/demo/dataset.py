"""The demo's data: which type does a documented SciPy parameter take, and a heap of other documentation."""

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

LABELS = {
    "array": "an array or something array-like",
    "flag": "a boolean, True or False",
    "function": "a callable",
    "integer": "a whole number",
    "real": "a floating-point number",
    "text": "a string, or one of several named choices",
}
SEED = 2
TRAIN, DEV, TEST = 400, 400, 1300  # dev and test end with the module that reaches the count
LONGEST = 40  # words of a description that are kept
RUN = 13  # words in a row that two texts may not share (or all of the shorter text)
_KEY = 5  # words by which runs are looked up

_TYPES = (
    ("integer", re.compile(r"int|integer|non-?negative int|positive int|int >=? 0")),
    ("real", re.compile(r"float|double|positive float")),
    ("flag", re.compile(r"bool|boolean")),
    ("text", re.compile(r"str|string|(?:str |string )?\{['\"].*")),
    ("function", re.compile(r"callable.*|function")),
    ("array", re.compile(r"(?:array|ndarray|numpy\.ndarray|\(.*\) (?:nd)?array|1-?d array)(?!.* or ).*")),
)
_SECTIONS = {"Parameters", "Other Parameters"}
_ENTRY = re.compile(r"\**(\w[\w, *]*?)\**\s*:\s*(\S.*)")
_UNDERLINE = re.compile(r"\s*-{3,}\s*")


@dataclass(frozen=True)
class Example:
    """A parameter's name and description, the type that its documentation states, and where it stands."""

    name: str
    description: str
    label: str
    source: str

    def row(self) -> dict[str, str]:
        """Return the example as the data files hold it; the stated type is not part of the text."""
        text = f"{self.name} : {' '.join(self.description.split()[:LONGEST])}"
        return {"text": text, "label": self.label, "source": self.source}


class Runs:
    """The word runs of some texts, to find other texts that share one."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._tails: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
        for text in texts:
            found = words(text)
            length = min(RUN, len(found))
            for start in range(len(found) - length + 1):
                run = tuple(found[start : start + length])
                self._tails.setdefault(run[:_KEY], set()).add(run[_KEY:])

    def shared_by(self, found: list[str]) -> bool:
        """Say whether the words of a text hold one of the runs."""
        for start in range(len(found) - _KEY + 1):
            tails = self._tails.get(tuple(found[start : start + _KEY]))
            if tails is not None:
                after = tuple(found[start + _KEY : start + RUN])
                if any(after[: len(tail)] == tail for tail in tails):
                    return True
        return False


def build(folder: Path) -> dict[str, object]:
    """Write train, dev and test, the corpus and ABOUT.json into the folder; return what ABOUT.json says."""
    folder.mkdir(parents=True, exist_ok=True)
    harvest = list(documents())
    train, dev, test = _split(_examples(harvest))
    held_out = dev + test
    runs = Runs(example.description for example in held_out)
    corpus, duplicates, dropped = _corpus(harvest, {example.source for example in held_out}, runs)
    for name, part in (("train", train), ("dev", dev), ("test", test)):
        _write(folder / f"{name}.jsonl", _lines(example.row() for example in part))
    _write(folder / "corpus.jsonl.zst", pyarrow.compress(_lines(corpus), codec="zstd", asbytes=True))
    about: dict[str, object] = {
        "task": "Which type does a parameter of a SciPy function take? The text is its name and description "
        "as documented, without the type that the documentation states; that type is the label.",
        "labels": LABELS,
        "split": "by source module; no run of 13 words (or all of a shorter text) is shared across splits",
        "examples": {name: len(part) for name, part in (("train", train), ("dev", dev), ("test", test))},
        "per_label": {
            name: dict(sorted(Counter(example.label for example in part).items()))
            for name, part in (("train", train), ("dev", dev), ("test", test))
        },
        "corpus": {
            "what": "docstrings, comments, README and licence texts, outside the modules of dev and test",
            "passages": len(corpus),
            "words": sum(len(row["text"].split()) for row in corpus),
            "dropped_as_duplicates": duplicates,
            "dropped_for_sharing_a_run_with_dev_or_test": dropped,
        },
        "python": python_version(),
        "versions": versions(),
    }
    _write(folder / "ABOUT.json", (json.dumps(about, indent=2) + "\n").encode())
    return about


def _examples(harvest: list[Document]) -> list[Example]:
    """Every labelled parameter of SciPy once; descriptions that begin alike count as the same."""
    found: dict[str, Example] = {}
    for document in harvest:
        if document.source.startswith("scipy/") and document.source.endswith(".py"):
            for name, stated, description in _parameters(document.text):
                label = _label(stated)
                if label and len(words(description)) >= 6:
                    key = " ".join(words(description))[:60]
                    found.setdefault(key, Example(name, description, label, document.source))
    return list(found.values())


def _parameters(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield (name, stated type, description) for the entries of a numpydoc parameter section."""
    lines = text.split("\n")
    section, margin = "", 0
    entry: tuple[str, str] | None = None
    body: list[str] = []
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        indent = len(line) - len(line.lstrip())
        heading = bool(line.strip()) and _UNDERLINE.fullmatch(following) is not None
        if entry and (heading or (line.strip() and indent <= margin)):
            yield (*entry, " ".join(body))
            entry, body = None, []
        if heading:
            section, margin = line.strip(), indent
        elif section in _SECTIONS and line.strip() and not _UNDERLINE.fullmatch(line):
            match = _ENTRY.fullmatch(line.strip()) if indent == margin else None
            if match:
                entry = (match[1], match[2])
            elif entry:
                body.append(line.strip())
    if entry:
        yield (*entry, " ".join(body))


def _label(stated: str) -> str | None:
    """Return the label for a stated type, None where it is none of the six or more than one."""
    plain = re.sub(r",?\s*\(?(?:optional|default).*", "", stated.strip().strip("`").lower()).strip(" ,(")
    for label, pattern in _TYPES:
        if pattern.fullmatch(plain):
            return label
    return None


def _split(examples: list[Example]) -> tuple[list[Example], list[Example], list[Example]]:
    """Give whole modules, in seeded order, to test, dev and train; later parts lose what shares a run."""
    chance = random.Random(SEED)
    modules = sorted({example.source for example in examples})
    chance.shuffle(modules)
    place = {module: index for index, module in enumerate(modules)}
    ordered = sorted(examples, key=lambda example: place[example.source])
    test_end = _module_end(ordered, TEST)
    dev_end = _module_end(ordered, test_end + DEV)
    test = ordered[:test_end]
    in_test = Runs(example.description for example in test)
    dev = [example for example in ordered[test_end:dev_end] if not in_test.shared_by(words(example.description))]
    held_out = Runs(example.description for example in test + dev)
    rest = [example for example in ordered[dev_end:] if not held_out.shared_by(words(example.description))]
    if len(rest) < TRAIN:
        raise RunError(
            f"only {len(rest)} labelled parameters were found for training and {TRAIN} are needed: the "
            "installed scipy documents its parameters in another form; install scipy 1.17 and try again"
        )
    chance.shuffle(rest)
    return rest[:TRAIN], dev, test


def _module_end(ordered: list[Example], count: int) -> int:
    """Return the first index at or after `count` at which another module begins."""
    while 0 < count < len(ordered) and ordered[count].source == ordered[count - 1].source:
        count += 1
    return count


def _corpus(harvest: list[Document], held_out: set[str], runs: Runs) -> tuple[list[dict[str, str]], int, int]:
    """Return the corpus rows, how many duplicates and how many contaminated passages were left out."""
    rows: list[dict[str, str]] = []
    seen: set[str] = set()
    duplicates = dropped = 0
    for document in harvest:
        if document.source in held_out:
            continue
        for passage in passages(document.text):
            found = words(passage)
            key = " ".join(found)
            if key in seen:
                duplicates += 1
            elif runs.shared_by(found):
                dropped += 1
            else:
                rows.append({"id": f"p{len(rows):06d}", "text": passage, "source": document.source})
            seen.add(key)
    return rows, duplicates, dropped


def _lines(rows: Iterable[dict[str, str]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode("utf-8", "replace")


def _write(path: Path, content: bytes) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(content)
    partial.replace(path)
