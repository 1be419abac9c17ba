"""Checks of a tokenizer.json, which may come from anywhere: its library has no limits. A tokenizer
can double a text again and again until the memory is full, run a regular expression for hours, or
number its tokens beyond every table. All of this can be detected without running it.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

MOST_PARTS = 100  # normalizers, or pre-tokenizers, one after the other
MOST_GROWTH = 300.0  # bytes that one byte of a text may become; of SentencePiece's usual map, 33
# characters of a word that WordPiece splits, in time that grows with their cube; BERT's has 100
LONGEST_WORD = 200
MOST_IDS = 4_000_000
LONGEST_PATTERN = 2000
MOST_REPEATS = 3  # repetitions without an end in one branch of a pattern
_QUANTIFIER = re.compile(r"(?:[*+?]|\{(\d{0,9})(,?)(\d{0,9})\})[?+]?")
_GROUP = re.compile(r"\((?:\?(?:[imsx-]*:|[=!>]|<[=!]))?")
_SET = re.compile(r"\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\\[])*\]", re.DOTALL)
_ESCAPE = re.compile(
    r"\\(?:[pP]\{\^?\w+\}|x[0-9a-fA-F]{2}|x\{[0-9a-fA-F]+\}|u[0-9a-fA-F]{4}|[^1-9gkKR])", re.DOTALL
)

_LONGER = {"[": _SET, "\\": _ESCAPE}  # by the signs that begin them


def check_tokenizer(values: Any) -> None:
    """Raises ValueError if a tokenizer.json cannot be run safely."""
    if not isinstance(values, dict) or not isinstance(values.get("model"), dict):
        raise ValueError("it does not describe a tokenizer")
    growth = 1.0
    for part in parts_of(values.get("normalizer"), "normalizers"):
        growth *= _growth(part)
        if growth > MOST_GROWTH:
            raise ValueError(
                f"its normalizers may make a text more than {MOST_GROWTH:.0f} times as long"
            )
    for name, inside in (
        ("normalizer", "normalizers"),
        ("pre_tokenizer", "pretokenizers"),
        ("decoder", "decoders"),
    ):
        for part in parts_of(values.get(name), inside):
            if (pattern := _pattern(part, "Regex")) is not None:
                check_pattern(pattern)
    _check_template(values.get("post_processor"))
    _check_model(values["model"], _added_tokens(values.get("added_tokens")))


def parts_of(part: Any, inside: str) -> Iterator[dict[str, Any]]:
    """Yields the parts of a component, those of sequences one after the other."""
    waiting, seen = [part], 0
    while waiting:
        one = waiting.pop()
        if not isinstance(one, dict):
            continue  # none, or nothing that the library would accept
        seen += 1
        if seen > MOST_PARTS:
            raise ValueError(f"it has more than {MOST_PARTS} {inside}")
        if isinstance(one.get(inside), list):
            waiting += reversed(one[inside])
        else:
            yield one


def _pattern(part: dict[str, Any], kind: str) -> str | None:
    pattern = part.get("pattern")
    if isinstance(pattern, dict) and isinstance(text := pattern.get(kind), str):
        return text
    return None


def _growth(part: dict[str, Any]) -> float:
    """How many bytes a normalizer makes of one, at most."""
    if part.get("type") == "Precompiled":
        return _longest_entry(part.get("precompiled_charsmap"))
    if part.get("type") == "Prepend" and len(str(part.get("prepend"))) > MOST_PARTS:
        raise ValueError("it prepends a long text")
    if part.get("type") != "Replace":
        return 1.0
    content = len(str(part.get("content")).encode("utf-8", "replace"))
    if (text := _pattern(part, "String")) is not None:
        if not text:
            raise ValueError("it replaces the empty text")
        return max(1.0, content / len(text.encode("utf-8", "replace")))
    return 1.0 + content


def _longest_entry(charsmap: Any) -> float:
    """The longest entry of SentencePiece's map: size of an index, index, texts that end in NUL."""
    try:
        blob = base64.b64decode(str(charsmap), validate=True)
    except ValueError:
        raise ValueError("its precompiled map is damaged") from None
    size = int.from_bytes(blob[:4], "little")
    if len(blob) < 8 or size % 4 or not 0 < size <= len(blob) - 4:
        raise ValueError("its precompiled map is damaged")
    return float(max(1, *map(len, blob[4 + size :].split(b"\0"))))


def check_pattern(pattern: str) -> None:
    """Raises ValueError for a regular expression that may take more than polynomial time.

    A repeated group may hold neither repetitions nor alternatives, and nothing refers back to a
    group.
    """
    refused = ValueError(f"its regular expression {pattern[:80]!r} may run forever on some texts")
    if len(pattern) > LONGEST_PATTERN:
        raise refused
    groups = [_Group()]
    last: _Group | None = None  # that has just ended
    place = 0
    while place < len(pattern):
        sign, here = pattern[place], groups[-1]
        if match := _QUANTIFIER.match(pattern, place):
            least, most = _counts(match)
            if last is not None and last.varies and most > 1:
                raise refused
            here.varies |= most > least
            here.repeats += most - least > MOST_PARTS
            last = None
        elif sign == "(":
            if not (match := _GROUP.match(pattern, place)) or (
                pattern.startswith("(?", place) and match.end() < place + 3
            ):
                raise refused
            groups.append(_Group())
        elif sign == ")":
            if len(groups) == 1:
                raise refused
            last = groups.pop()
            groups[-1].varies |= last.varies
        else:
            if sign == "|":
                here.repeats, here.varies = 0, True
            last = None
            if sign in _LONGER and not (match := _LONGER[sign].match(pattern, place)):
                raise refused
        if here.repeats > MOST_REPEATS:
            raise refused
        place = match.end() if match else place + 1


@dataclass
class _Group:
    """The contents of a group of a pattern, as far as it was read."""

    repeats: int = 0  # without an end, in this branch
    varies: bool = False  # whether it may match a text in several ways


def _counts(quantifier: re.Match[str]) -> tuple[float, float]:
    """How often a quantifier repeats, at least and at most."""
    least, comma, most = quantifier.groups()
    if comma is None:
        return {"*": (0, math.inf), "+": (1, math.inf), "?": (0, 1)}[quantifier.group()[0]]
    if not comma:
        return int(least or 1), int(least or 1)
    return int(least or 0), float(most or math.inf)


def _check_template(processor: Any) -> None:
    """Raises ValueError if a template names special tokens that it does not have."""
    for part in parts_of(processor, "processors"):
        if part.get("type") != "TemplateProcessing":
            continue
        known = part.get("special_tokens")
        for piece in [*_list(part.get("single")), *_list(part.get("pair"))]:
            token = piece.get("SpecialToken") if isinstance(piece, dict) else None
            if not isinstance(token, dict):
                continue
            if not isinstance(known, dict) or token.get("id") not in known:
                name = token.get("id")
                raise ValueError(
                    f"its template names the special token {name!r}, which it does not have"
                )


def _added_tokens(added: Any) -> dict[str, Any]:
    ids = {}
    for token in _list(added):
        if isinstance(token, dict):
            ids[str(token.get("content"))] = token.get("id")
    return ids


def _check_model(model: dict[str, Any], added: dict[str, Any]) -> None:
    vocabulary = model.get("vocab")
    known = dict(vocabulary) if isinstance(vocabulary, dict) else {}
    numbers = [*known.values(), *added.values()]
    if (
        any(type(number) is not int or not 0 <= number < MOST_IDS for number in numbers)
        or len(_list(vocabulary)) > MOST_IDS
    ):
        raise ValueError(f"its token ids are not numbers from 0 to {MOST_IDS:,}")
    longest = model.get("max_input_chars_per_word", 0)
    if type(longest) is not int or longest > LONGEST_WORD:
        raise ValueError(
            f"it splits words of more than {LONGEST_WORD} characters (max_input_chars_per_word), "
            "which takes very long"
        )
    unknown = model.get("unk_token")
    if known and unknown is not None and unknown not in known and unknown not in added:
        raise ValueError(f"it has no {unknown!r} token, which it uses for unknown text")
    if model.get("dropout"):
        raise ValueError("it splits words at random (dropout)")


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
