"""The audit of the data before training: shown by `tasklm check`; `fit` refuses or warns with the
same messages.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice

from tasklm.corpus.base import PassageSource
from tasklm.corpus.contamination import FEWEST_WORDS, Contamination
from tasklm.corpus.dedupe import near_duplicates
from tasklm.corpus.words import count_words
from tasklm.errors import DataError
from tasklm.recipe.data_sections import Data
from tasklm.tasks.examples import Example, Finding, Splits

LONG_WORDS = 400  # about 512 tokens
ALIKE = 0.8  # near duplicates: Jaccard similarity of runs of words
_MOST_COMPARED = 200_000  # examples compared for near duplicates
_SHOWN = 3
# UTF-8 that was read as Windows-1252: "é" has become "Ã©", "’" has become "â€™"
_MOJIBAKE = re.compile(
    r"[ÃÂ][\u0080-\u00bf]|â€[\u0080-\u00bf™œ“”˜¦]|â\x80[\x80-\xbf]|Ð[\u0080-\u00bf]Ñ|ï»¿"
)
_CONTROL = re.compile(
    r"[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]"
)  # except tabs, line and page breaks


def refuse(findings: Sequence[Finding]) -> None:
    """Raises one DataError with the messages of all errors, if there are any."""
    errors = [finding for finding in findings if finding.level == "error"]
    if errors:
        messages = "\n".join(
            f"  - {finding.check}: {finding.message}"
            + "".join(f"\n      {line}" for line in finding.examples)
            for finding in errors
        )
        count = "an error" if len(errors) == 1 else f"{len(errors)} errors"
        raise DataError(
            f"the data has {count}:\n{messages}\nNothing was trained",
            remedy="`tasklm check` shows the full audit.",
        )


def audit_splits(splits: Splits, data: Data) -> list[Finding]:
    """The findings on the labelled data, in the order of the checks, "ok" if all is well."""
    return [
        _empty(splits),
        _long(splits),
        _encoding(splits),
        *_repeats(splits),
        *_shared(splits, data),
        *_near(splits),
    ]


def _show(example: Example, note: str = "") -> str:
    text = " ".join(example.text[:400].split())
    if len(text) > 80:
        text = text[:79] + "…"
    return f"{example.file}, line {example.line}: {text!r}{note}"


def _warning(check: str, brief: str, message: str, examples: Iterable[str] = ()) -> Finding:
    return Finding("warning", check, message, tuple(islice(examples, _SHOWN)), brief)


def _empty(splits: Splits) -> Finding:
    notes = [note for note in splits.notes if "without text" in note]
    if notes:
        brief = "rows without text were skipped: fill them in, or delete them"
        return _warning("empty texts", brief, "; ".join(notes) + ". Fill in or delete these rows.")
    return Finding("ok", "empty texts", "every row has a text.")


def _over(splits: Splits, wanted: Callable[[Example], bool]) -> tuple[str, list[Example]]:
    """The number of matching examples per split, as text, and those examples."""
    matching = {
        name: [example for example in part if wanted(example)]
        for name, part in splits.named().items()
    }
    counts = ", ".join(
        f"{len(part):,} of {len(splits.named()[name]):,} in {name}"
        for name, part in matching.items()
        if part
    )
    return counts, list(chain.from_iterable(matching.values()))


def _long(splits: Splits) -> Finding:
    counts, examples = _over(
        splits,
        lambda example: len(example.text) > LONG_WORDS and count_words(example.text) > LONG_WORDS,
    )
    if not examples:
        return Finding("ok", "long texts", f"no text has more than {LONG_WORDS} words.")
    longest = sorted(examples, key=lambda example: -len(example.text))
    return _warning(
        "long texts",
        f"texts of more than {LONG_WORDS} words: {len(examples):,}; --tokens.length may cut them",
        (
            f"texts of more than {LONG_WORDS} words: {counts}. A row has tokens.length tokens: "
            "longer texts are cut, or read in parts if the kind of task supports it."
        ),
        (_show(example, f" ({count_words(example.text):,} words)") for example in longest),
    )


def _trouble(text: str) -> str:
    """The problem with the characters of a text, or an empty string."""
    if text.isascii() and text.isprintable():
        return ""
    if "\ufffd" in text:
        return "the replacement character U+FFFD"
    if match := _MOJIBAKE.search(text):
        return f"{match.group()!r}, UTF-8 read in another encoding"
    if match := _CONTROL.search(text):
        return f"the control character U+{ord(match.group()):04X}"
    return ""


def _encoding(splits: Splits) -> Finding:
    counts, examples = _over(splits, lambda example: bool(_trouble(example.text)))
    if not examples:
        return Finding("ok", "encoding", "no broken characters.")
    return _warning(
        "encoding",
        f"texts with broken characters: {len(examples):,}; export them again as UTF-8",
        f"texts with broken characters: {counts}. Export them again from the original as UTF-8.",
        (_show(example, f" has {_trouble(example.text)}") for example in examples),
    )


def _by_key(examples: Sequence[Example]) -> dict[int, list[Example]]:
    groups: dict[int, list[Example]] = defaultdict(list)
    for example in examples:
        groups[example.key].append(example)
    return groups


def _label(example: Example) -> str:
    """The label of an example; none where it is one of the texts that are compared."""
    label, texts = example.label, example.texts
    written = len(texts) > 1 and isinstance(label, tuple) and label[0] in texts
    return "" if written else repr(label)


def _repeats(splits: Splits) -> list[Finding]:
    findings = []
    for name, part in splits.named().items():
        groups = [group for group in _by_key(part).values() if len(group) > 1]
        clash = [group for group in groups if len({_label(example) for example in group}) > 1]
        alike = [group for group in groups if len({_label(example) for example in group}) == 1]
        if alike:
            extra = sum(len(group) - 1 for group in alike)
            findings.append(
                _warning(
                    "duplicates",
                    f"duplicates in {name}: {extra:,}; delete them unless intended",
                    (
                        f"{extra:,} of {len(part):,} examples of {name} repeat an earlier one "
                        "with the same label. "
                        "Delete the duplicates, unless they are meant to count more."
                    ),
                    (_show(group[1], f" repeats line {group[0].line}") for group in alike),
                )
            )
        if clash:
            findings.append(
                _warning(
                    "conflicting labels",
                    f"conflicting labels in {name}: {len(clash):,}; choose one, or delete them",
                    (
                        f"{len(clash):,} texts occur in {name} with different labels. Choose one "
                        "label for each, or delete them."
                    ),
                    (_show(group[0], " is " + _labelled(group)) for group in clash),
                )
            )
    return findings or [Finding("ok", "duplicates", "no text occurs twice in a split.")]


def _labelled(group: Sequence[Example]) -> str:
    lines: dict[str, int] = {}
    for example in group:
        lines.setdefault(str(example.label), example.line)
    return " and ".join(f"{label!r} (line {line})" for label, line in lines.items())


def _shared(splits: Splits, data: Data) -> list[Finding]:
    """The examples that two splits share: scores on them would reward memorising."""
    findings, named = [], splits.named()
    groups = {name: _by_key(part) for name, part in named.items()}
    for early, late in (("train", "test"), ("train", "dev"), ("dev", "test")):
        if early not in named or late not in named:
            continue
        both = [example for example in named[late] if example.key in groups[early]]
        if both:
            if data.leaks == "refuse":
                level = "error"
                way_out = (
                    f'Set data.leaks = "drop" (--data.leaks drop) to leave them out of {early}, '
                    'or "keep" to continue with scores that are too high.'
                )
            else:
                level = "warning"
                way_out = (
                    f"Scores on {late} are too high; "
                    f'data.leaks = "drop" (--data.leaks drop) leaves them out of {early}.'
                )
            firsts = {key: group[0] for key, group in groups[early].items()}
            examples = tuple(
                _show(example, f" is also in {early}: {_place(firsts[example.key])}")
                for example in both[:_SHOWN]
            )
            count, size = f"{len(both):,}", f"{len(named[late]):,}"
            message = f"{count} of the {size} {late} examples also occur in {early}. {way_out}"
            brief = f"{count} of {size} {late} examples are in {early}: --data.leaks drop fixes it"
            findings.append(Finding(level, "examples in two splits", message, examples, brief))
    return findings or [Finding("ok", "examples in two splits", "no example occurs in two splits.")]


def _place(example: Example) -> str:
    return f"{example.file}, line {example.line}"


def _near(splits: Splits) -> list[Finding]:
    """Near duplicates within and across splits; exact ones have separate findings."""
    unique: dict[tuple[str, int], tuple[str, Example]] = {}
    for name in ("test", "dev", "train"):
        for example in splits.named().get(name, []):
            unique.setdefault((name, example.key), (name, example))
    entries = list(unique.values())[:_MOST_COMPARED]
    cut = ""
    if len(entries) < len(unique):
        cut = f" (the first {_MOST_COMPARED:,} texts were compared)"
    keys = [example.key for _, example in entries]
    inside: dict[str, list[tuple[Example, Example]]] = defaultdict(list)
    across: dict[tuple[str, str], dict[int, tuple[Example, Example]]] = defaultdict(dict)
    for i, j, _ in near_duplicates([example.text for _, example in entries], ALIKE):
        (late, one), (early, other) = entries[i], entries[j]
        if keys[i] == keys[j]:
            continue
        if late == early:
            inside[late].append((one, other))
        else:
            across[late, early].setdefault(i, (one, other))
    findings = []
    for name, pairs in sorted(inside.items()):
        findings.append(
            _warning(
                "near duplicates",
                f"{len(pairs):,} pairs of texts in {name} are nearly the same: keep one of each",
                (
                    f"pairs of texts in {name} that are nearly the same: "
                    f"{len(pairs):,}{cut}. Keep one of each, unless both are wanted."
                ),
                (_show(a, f" resembles line {b.line}") for a, b in pairs),
            )
        )
    for (late, early), nearest in sorted(across.items()):
        findings.append(
            _warning(
                "near duplicates in two splits",
                f"near copies of {early} in {late}: {len(nearest):,}; put them in one split",
                (
                    f"{len(nearest):,} of the {len(splits.named()[late]):,} "
                    f"{late} examples nearly repeat one in {early}{cut}. "
                    f"Scores on {late} may be too high; put such texts in one split."
                ),
                (_show(a, f" resembles {_place(b)}") for a, b in nearest.values()),
            )
        )
    return findings or [Finding("ok", "near duplicates", f"no two texts are nearly the same{cut}.")]


def audit_corpus(
    store: PassageSource, splits: Splits, contamination: Contamination
) -> list[Finding]:
    """The findings on the corpus; an empty corpus after decontamination is an error."""
    counts = store.counts
    findings = [
        Finding(
            "ok",
            "corpus",
            (
                f"{counts['passages']:,} passages, {counts['words']:,} words "
                f"from {counts['documents']:,} documents; "
                f"left out: {counts['duplicates']:,} duplicates, {counts['empty']:,} without text."
            ),
        )
    ]
    banned, left = int(contamination.banned.sum()), int((~contamination.banned).sum())
    checked = ""
    if contamination.unchecked:
        checked = (
            f" {contamination.unchecked:,} task texts of fewer than {FEWEST_WORDS} words were not "
            "searched for; check them by hand."
        )
    if not banned:
        findings.append(
            Finding("ok", "contamination", f"no passage contains text of dev or test.{checked}")
        )
        return findings
    findings.append(
        _warning(
            "contamination",
            f"passages that contain text of dev or test and are left out: {banned:,}",
            (
                f"{banned:,} of {len(store):,} passages contain text of dev or test and are left "
                f"out; {left:,} remain.{checked}"
            ),
            (_contaminated(entry, splits) for entry in contamination.examples),
        )
    )
    if not left:
        findings.append(
            Finding(
                "error",
                "corpus left",
                (
                    "every passage of the corpus contains text of dev or test, "
                    "so nothing is left to learn from. "
                    "Add other text with --corpus, or raise data.contamination_words."
                ),
            )
        )
    return findings


def _contaminated(entry: dict[str, object], splits: Splits) -> str:
    part, number = splits.named().get(str(entry["split"]), []), int(str(entry["example"]))
    where = f" ({_place(part[number - 1])})" if number <= len(part) else ""
    return (
        f"passage {entry['id']} of {entry['source']} shares "
        f"{str(entry['words'])!r} with {entry['split']}{where}"
    )
