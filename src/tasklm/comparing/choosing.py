"""Which contestant to use when: the rules, and what they say in words.

1. The best has the highest score on test (on dev, without a test set).
2. A contestant is within chance of the best where the paired difference has p ≥ 1 − confidence,
   corrected by Holm over all comparisons with the best.
3. Of those within chance, and the best, the smallest has the fewest bytes on the disk, the fastest
   the lowest median latency of one text, and the leanest the lowest peak of memory in training.
4. Of those without weights of others, the best has the highest score.

A contestant without a model, such as the majority, is never recommended.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tasklm.comparing.entries import OURS
from tasklm.comparing.results import Comparison, Cost, Result, titles
from tasklm.console.durations import duration
from tasklm.evaluate.scores import metric_name, score_text

BEST, SMALLEST, FASTEST = "highest score", "smallest", "fastest"
LEANEST, OWN = "least memory in training", "without outside weights"
WORTH = 1.5  # times smaller, faster or leaner than the best: less is not worth a word
REFERENCE = "majority"
Measure = Callable[[Result], float]


def size(result: Result) -> float:
    """Bytes on the disk."""
    return float(result.cost.size)


def latency(result: Result) -> float:
    """Seconds for one text; infinite where it was not measured."""
    if result.latency is None:
        return math.inf
    return result.latency.median


def memory(result: Result) -> float:
    """The peak of memory in training; infinite where it is not known."""
    return result.cost.memory or math.inf


MEASURES: dict[str, Measure] = {SMALLEST: size, FASTEST: latency, LEANEST: memory}
NOUNS = {SMALLEST: "size", FASTEST: "latency", LEANEST: "memory in training"}


def candidates(comparison: Comparison) -> list[Result]:
    """The contestants that may be recommended, best first."""
    return [result for result in comparison.scored if result.contestant != REFERENCE]


def within_chance(comparison: Comparison) -> list[Result]:
    """The best contestant, and those that are not significantly worse."""
    level = 1 - comparison.confidence
    ordered = candidates(comparison)
    return [one for one in ordered if one.best is None or one.best.p >= level - 1e-12]


def picks_of(comparison: Comparison) -> dict[str, str]:
    """What counts → the contestant to use then; empty where nothing has a score."""
    equal = within_chance(comparison)
    if not equal:
        return {}
    picks = {BEST: candidates(comparison)[0].title}
    for name, measure in MEASURES.items():
        known = [one for one in equal if measure(one) < math.inf]
        if known:
            picks[name] = min(known, key=measure).title
    own = [one for one in candidates(comparison) if not one.cost.outside_weights]
    if own:
        picks[OWN] = own[0].title
    return picks


def advice_of(comparison: Comparison) -> list[str]:
    """The recommendations as sentences."""
    if not comparison.picks:
        return ["No contestant has a score."]
    best = comparison.result(comparison.picks[BEST])
    sentences = [_about_best(comparison, best), *_instead(comparison, best)]
    sentences += [*_without_others(comparison, best), *_cheaper(comparison, best)]
    sentences += [*_about_ours(comparison, best), *_about_reference(comparison, best)]
    if comparison.split == "dev":
        sentences.append(
            "There is no test set: dev chose the settings, so these scores are optimistic."
        )
    return sentences


def _about_best(comparison: Comparison, best: Result) -> str:
    """Who has the highest score, and who may have it by chance alone."""
    assert best.score is not None
    name = f"{comparison.split} {metric_name(comparison.metric)}"
    lead = f"{best.title} has the highest score, {score_text(best.score, comparison.confidence)}"
    others = [one for one in within_chance(comparison) if one.title != best.title]
    if not others:
        return f"{lead} {name}; no other contestant is within chance of it."
    count = comparison.data.get(comparison.split, 0)
    these = f"these {count:,} examples cannot tell {titles(others)} from it"
    return f"{lead} {name}; {these}."


def _instead(comparison: Comparison, best: Result) -> list[str]:
    """A sentence for each contestant within chance that is smaller, faster or leaner than the best;
    one for the best where there is none.
    """
    gains: dict[str, list[str]] = {}
    for name, measure in MEASURES.items():
        title = comparison.picks.get(name, best.title)
        times = ratio(measure(best), measure(comparison.result(title)))
        if title != best.title and times >= WORTH:
            gains.setdefault(title, []).append(f"1/{times_text(times)} of its {NOUNS[name]}")
    if not gains and len(within_chance(comparison)) > 1:
        return ["None of those is much smaller, faster or leaner: use the best."]
    sentences = []
    for title, words in gains.items():
        result = comparison.result(title)
        assert result.best is not None
        points = f"within {points_text(result)} points of the best"
        chance = f"which may be chance (p = {result.best.p:.2g})"
        sentences.append(f"{title} may do: {points}, {chance}, at {_listed(words)}.")
    return sentences


def _cheaper(comparison: Comparison, best: Result) -> list[str]:
    """What is significantly worse but far faster or smaller than all that are as good as the best:
    at most one.
    """
    equal = {one.title for one in within_chance(comparison)}
    fastest = comparison.result(comparison.picks.get(FASTEST, best.title))
    worse = [one for one in candidates(comparison) if one.title not in equal]
    worse = [one for one in worse if ratio(latency(fastest), latency(one)) >= 2 * WORTH]
    if not worse:
        return []
    other = worse[0]
    assert other.best is not None
    times = times_text(ratio(latency(best), latency(other)))
    lost = f"gives up {points_text(other)} points ({_significance(comparison, other)})"
    return [f"{other.title} {lost} for 1/{times} of the latency of {best.title}."]


def _without_others(comparison: Comparison, best: Result) -> list[str]:
    """The best that was trained here from nothing, where the best was not."""
    title = comparison.picks.get(OWN)
    if not best.cost.outside_weights or title is None:
        return []
    own = comparison.result(title)
    assert own.best is not None and own.score is not None
    behind = f"{points_text(own)} points behind ({_significance(comparison, own)})"
    return [f"Without outside weights: {title}, {score_text(own.score)}, {behind}."]


def _about_ours(comparison: Comparison, best: Result) -> list[str]:
    """Where tasklm's own model stands, if it is not the best."""
    ours = [one for one in comparison.scored if one.contestant == OURS]
    if not ours or ours[0].title == best.title:
        return []
    if best.cost.outside_weights and comparison.picks.get(OWN) == ours[0].title:
        return []  # that has been said
    own = ours[0]
    assert own.best is not None
    behind = f"tasklm is {points_text(own)} points behind {best.title}"
    if own.best.p < 1 - comparison.confidence:
        return [f"{behind} ({_significance(comparison, own)}): for the score, do not use it here."]
    return [f"{behind} ({_significance(comparison, own)})."]


def _about_reference(comparison: Comparison, best: Result) -> list[str]:
    """A warning where nothing, or not every contestant, is better than the most frequent answer."""
    for result in comparison.scored:
        if result.contestant != REFERENCE:
            continue
        if result.best is None or result.best.p >= 1 - comparison.confidence:
            return [
                f"{best.title} is not significantly better than the most frequent answer: the "
                "examples say too little, or there are too few of them."
            ]
        return _learnt_nothing(comparison, result)
    return []


def _learnt_nothing(comparison: Comparison, reference: Result) -> list[str]:
    """Who scores no more than the most frequent answer."""
    those = [one for one in candidates(comparison) if one.mean <= reference.mean]
    if not those:
        return []
    more = f"{duration(60 * comparison.minutes)} on this machine may have been too short"
    return [f"No better than the most frequent answer: {titles(those)}; {more}."]


def _significance(comparison: Comparison, result: Result) -> str:
    assert result.best is not None
    sure = "not significant"
    if result.best.p < 1 - comparison.confidence:
        sure = "significant"
    return f"p {result.best.p_text(equal='= ')}, {sure}"


def points_text(result: Result) -> str:
    """How many points a contestant is behind the best."""
    assert result.best is not None
    return f"{100 * result.best.difference.difference:.1f}"


def ratio(large: float, small: float) -> float:
    """How many times one measure is another; 0 where one is not known."""
    if large in (0.0, math.inf) or small in (0.0, math.inf):
        return 0.0
    return large / small


def times_text(times: float) -> str:
    """A ratio in a sentence: 1.8, 12, 350."""
    if times < 10:
        return f"{times:.1f}".removesuffix(".0")
    digits = 10 ** max(0, len(str(int(times))) - 2)
    return f"{round(times / digits) * digits:,}"


def _listed(words: Sequence[str]) -> str:
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"


def needs_text(cost: Cost) -> str:
    """What a contestant needs besides labelled examples."""
    needs = []
    if cost.outside_weights:
        needs.append("outside weights")
    if cost.reads_text:
        needs.append("text")
    if cost.device not in ("", "cpu"):
        needs.append("a GPU was used")
    return ", ".join(needs) or "–"
