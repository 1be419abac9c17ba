"""The characteristic words of the selection: log-odds against a random sample, with a Dirichlet
prior.

Monroe, Colaresi and Quinn, "Fightin' Words" (2008), section 3.5.1: the prior is the two texts'
common word distribution, so rare words need more evidence; words are ranked by log-odds over its
standard deviation. The sample of a corpus is drawn uniformly, as a random selection is: both should
give about the same words.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Set
from functools import cache

from tasklm.corpus.words import words

# Scripts without spaces have no cheap word boundaries; single characters stand for words.
_UNSPACED = "\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"


def overrepresented(
    selected: Iterable[str],
    sample: Iterable[str],
    count: int = 40,
    prior: float = 1000.0,
    least: int = 5,
) -> list[tuple[str, float, int]]:
    """Up to `count` words (word, log-odds, occurrences) most typical of `selected`, most
    significant first.

    `prior` is the weight of the prior in words; words that occur fewer than `least` times are left
    out.
    """
    here, there = counted(selected), counted(sample)
    here_total, there_total = sum(here.values()), sum(there.values())
    if not here_total or not there_total:
        return []
    both_total = here_total + there_total
    ranked = []
    for word, occurrences in here.items():
        if occurrences < least:
            continue
        other = there[word]
        alpha = prior * (occurrences + other) / both_total
        odds_here = (occurrences + alpha) / (here_total + prior - occurrences - alpha)
        odds_there = (other + alpha) / (there_total + prior - other - alpha)
        log_odds = math.log(odds_here) - math.log(odds_there)
        deviation = math.sqrt(1 / (occurrences + alpha) + 1 / (other + alpha))
        if log_odds > 0:
            ranked.append((log_odds / deviation, word, log_odds, occurrences))
    ranked.sort(key=lambda entry: (-entry[0], entry[1]))
    return [(word, log_odds, occurrences) for _, word, log_odds, occurrences in ranked[:count]]


@cache
def word_pattern() -> re.Pattern[str]:
    """The pattern of one word inside a text: letters and digits with their vowel signs, or one
    unspaced character.
    """
    # \w excludes combining marks, which would split Hindi, Tamil or decomposed é
    codes = (code for code in range(0x10000) if unicodedata.category(chr(code)) in ("Mn", "Mc"))
    marks = "".join(f"\\u{code:04x}" for code in codes)
    return re.compile(f"[{_UNSPACED}]|(?:(?![{_UNSPACED}])[\\w{marks}])+")


def spans(text: str, wanted: Set[str]) -> list[tuple[int, int]]:
    """The positions of words in a text, as (start, end); `wanted` is split as by `corpus.words`."""
    positions: list[tuple[int, int]] = []
    for match in word_pattern().finditer(text):
        own, start = words(match.group()), match.start()
        if len(own) == 1:
            if own[0] in wanted:
                positions.append(match.span())
        else:  # of a script without spaces
            positions += [
                (start + at, start + at + 1)
                for at, character in enumerate(match.group())
                if wanted & set(words(character))
            ]
    return positions


def counted(texts: Iterable[str]) -> Counter[str]:
    """How often each word occurs in some texts; whole numbers are left out."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(words(text))
    for number in [word for word in counts if word.isdigit()]:
        del counts[number]
    return counts
