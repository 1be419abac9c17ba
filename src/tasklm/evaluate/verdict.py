"""What the scores of a run amount to, in one sentence that claims no more than was resampled."""

from __future__ import annotations

import dataclasses

from tasklm.evaluate.intervals import Difference
from tasklm.evaluate.scores import Row, Scores, Spread, metric_name, score_text

LINEAR = "The model is the linear model of words alone: training brought nothing better on dev. "
TRAININGS = (
    3  # of stage 1, of each model: fewer tell too little of what another seed would have given
)


def with_verdict(scores: Scores) -> Scores:
    """The scores with their verdict filled in."""
    ships = LINEAR if scores.linear else ""
    return dataclasses.replace(scores, verdict=ships + verdict(scores))


def verdict(scores: Scores) -> str:
    """Our score, the best other row, and whether the difference is more than chance; then what was
    resampled.

    It is about one model: an ensemble of ours is neither judged nor compared with.
    """
    ours = scores.ours
    others = [row for row in scores.rows if row.kind not in ("ours", "ensemble")]
    judged = others if ours is None else [ours]
    on_test = any(row.test is not None for row in judged)

    def of(row: Row) -> Spread | None:
        return row.test if on_test else row.dev

    name = f"{'test' if on_test else 'dev'} {metric_name(scores.metric)}"
    scored = [(row, value) for row in others if (value := of(row)) is not None]
    best, theirs = max(scored, key=lambda pair: pair[1].mean, default=(None, None))
    mine = None if ours is None else of(ours)
    if ours is None or mine is None:
        rest = (
            "."
            if best is None or theirs is None
            else f"; the best other row is {best.name} with {score_text(theirs)} {name}."
        )
        return "The model has not been scored yet" + rest
    our_score = score_text(mine, scores.confidence)
    against = best.against if best is not None else None
    end = "; there is no test set, and dev chose the model, so this flatters it."
    if on_test:
        end = f". Resampled: {ours.resampled if against is None else against.resampled}."
    if best is None or theirs is None:
        return f"{ours.name} scores {our_score} {name}; there is nothing to compare it with{end}"
    sure = "" if against is None else f" ({sureness(ours, best, against, 1 - scores.confidence)})"
    if mine.mean == theirs.mean:
        return f"{ours.name} and {best.name} tie: both score {our_score} {name}{end}"
    if mine.mean < theirs.mean:
        return (
            f"{best.name} wins: {score_text(theirs)} {name} "
            f"against {our_score} of {ours.name}{sure}{end}"
        )
    ahead = f"ahead of the best other row, {best.name}, with {score_text(theirs)}"
    return f"{ours.name} scores {our_score} {name}, {ahead}{sure}{end}"


def sureness(ours: Row, other: Row, difference: Difference, level: float) -> str:
    """How large a difference is, its p, and what may be concluded from it at a level."""
    return (
        f"difference {100 * abs(difference.difference):.1f}, "
        f"{difference.sureness()}: {_conclusion(ours, other, difference.p < level)}"
    )


def _conclusion(ours: Row, other: Row, beyond_chance: bool) -> str:
    """Calls a difference significant only where luck of the seed, which baselines do not have, was
    looked at too.
    """
    if not beyond_chance:
        return "not significant, it may be chance"
    trained = [row.trainings for row in (ours, other) if row.kind != "baseline"]
    if min(trained) >= TRAININGS:
        return "significant"
    if len(trained) == 1:
        return (
            f"significant for "
            f"{'this one training' if trained[0] == 1 else f'these {trained[0]} trainings'} "
            f"of stage 1"
        )
    return (
        f"clear on these test examples, but {_trainings(*trained)}, "
        f"so luck of the seed is not excluded: --train.seeds {TRAININGS}"
    )


def _trainings(one: int, other: int) -> str:
    """How often stage 1 of two models was trained, in words."""
    if one != other:
        return f"{one} and {other} trainings of stage 1"
    return "one training of stage 1 each" if one == 1 else f"{one} trainings of stage 1 each"
