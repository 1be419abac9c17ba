"""The verdict on the scores of a run, in one sentence that claims no more than was resampled."""

from __future__ import annotations

import dataclasses

from tasklm.evaluate.intervals import Difference
from tasklm.evaluate.scores import Row, Scores, Spread, metric_name, score_text
from tasklm.evaluate.task_tables import beside_own_models

LINEAR = "The model is the linear model of words alone: no trained network was better on dev. "
JOINT_TEACHERS = "teachers of the tasks"  # the row of all teachers of several tasks
UNTRAINED = "The model is the linear model of words alone: no network was trained. "
AVERAGED = "The model has the mean weights of its seeds: better on dev than each of them. "
# of stage 1, per model: fewer say too little about other seeds
TRAININGS = 3


def with_verdict(scores: Scores, has_network: bool = True) -> Scores:
    """The scores with their verdict filled in."""
    ships = ""
    if scores.linear:
        ships = LINEAR if has_network else UNTRAINED
    if scores.averaged:
        ships = AVERAGED
    others = beside_own_models(scores) + _beside_teachers(scores)
    return dataclasses.replace(scores, verdict=ships + verdict(scores) + others)


def _beside_teachers(scores: Scores) -> str:
    """What the teachers of the model score, as sentences; nothing where it has none."""
    ours, sentences = scores.ours, ""
    for row in scores.rows:
        value = row.test or row.dev
        if row.kind != "teacher" or value is None or ours is None:
            continue
        size = f" with {row.parameters / max(1, ours.parameters):.1f} times its weights"
        verb = "score" if row.name == JOINT_TEACHERS else "scores"
        sentences += f" Its {row.name} {verb} {score_text(value)}{size}."
    return sentences


def verdict(scores: Scores) -> str:
    """Our score, the best other row, whether the difference may be chance, and what was resampled.

    It concerns the single model: our ensemble is neither judged nor compared with. Teachers, which
    cost more, are named after it.
    """
    ours = scores.ours
    others = [row for row in scores.rows if row.kind in ("ablation", "baseline")]
    judged = [ours] if ours is not None else others
    split = "test" if any(row.test is not None for row in judged) else "dev"

    def of(row: Row) -> Spread | None:
        return row.test if split == "test" else row.dev

    name = f"{split} {metric_name(scores.metric)}"
    scored = [(row, value) for row in others if (value := of(row)) is not None]
    best, theirs = max(scored, key=lambda pair: pair[1].mean, default=(None, None))
    if ours is None or (mine := of(ours)) is None:
        unscored = "The model has not been scored yet"
        if best is None or theirs is None:
            return f"{unscored}."
        return f"{unscored}; the best other row is {best.name} with {score_text(theirs)} {name}."
    our_score = score_text(mine, scores.confidence)
    end, sure = f". Resampled: {ours.resampled}.", ""
    if best is not None and best.against is not None:
        end = f". Resampled: {best.against.resampled}."
        sure = f" ({sureness(ours, best, best.against, 1 - scores.confidence)})"
    if split == "dev":
        end = "; there is no test set, and dev was used to pick the model, so this is optimistic."
    if best is None or theirs is None:
        alone = f"{ours.name} scores {our_score} {name}; there is nothing to compare it with{end}"
        return _begun(alone)
    if score_text(mine) == score_text(theirs):  # as they are printed
        return _begun(f"{ours.name} and {best.name} tie: both score {our_score} {name}{end}")
    if mine.mean < theirs.mean:
        lead = _begun(f"{best.name} wins: {score_text(theirs)} {name}")
        return f"{lead} against {our_score} for {ours.name}{sure}{end}"
    ahead = f"ahead of the best other row, {best.name}, with {score_text(theirs)}"
    return _begun(f"{ours.name} scores {our_score} {name}, {ahead}{sure}{end}")


def _begun(sentence: str) -> str:
    """A sentence that begins with a capital letter, unless a name does: all-MiniLM, tasklm."""
    first = sentence.partition(" ")[0]
    plain = first.isalpha() and first.islower() and first != "tasklm"
    return sentence[:1].upper() + sentence[1:] if plain else sentence


def sureness(ours: Row, other: Row, difference: Difference, level: float) -> str:
    """The size of a difference, its p, and the conclusion at a level."""
    size = f"{100 * abs(difference.difference):.1f}"
    conclusion = _conclusion(ours, other, difference.p < level)
    return f"difference {size}, {difference.sureness()}: {conclusion}"


def _conclusion(ours: Row, other: Row, beyond_chance: bool) -> str:
    """Calls a difference significant only if the luck of the seed was resampled too."""
    if not beyond_chance:
        return "not significant; it may be chance"
    trained = [row.trainings for row in (ours, other) if row.kind != "baseline"]
    if min(trained) >= TRAININGS:
        return "significant"
    if len(trained) == 1:
        count = trained[0]
        these = "this one training" if count == 1 else f"these {count} trainings"
        return f"significant for {these} of stage 1"
    one, two = trained
    return (
        f"clear on these test examples, but {_trainings(one, two)}, "
        f"so it may be luck of the seed; to rule that out: --train.seeds {TRAININGS}"
    )


def _trainings(one: int, other: int) -> str:
    """The numbers of trainings of stage 1 of two models, as text."""
    if one != other:
        return f"{one} and {other} trainings of stage 1"
    return "one training of stage 1 each" if one == 1 else f"{one} trainings of stage 1 each"
