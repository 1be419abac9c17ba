"""Further labelled files beside those of a run (`data.more`): what of them is new, and where it
goes.

A row of a further file whose text is known is never learnt twice: it is left out where its label is
the same, and takes the place of the older example where the label has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tasklm.errors import DataError
from tasklm.recipe.data_sections import Data
from tasklm.tasks.examples import Example, Splits

FEWEST_FOR_DEV = 4  # examples of a class of which one is held out
SHOWN = 3  # examples that a note or an error names
LONGEST = 60  # characters of a label in a note

Read = Callable[[str, Data], list[Example]]
HoldOut = Callable[[list[Example], Data], tuple[list[Example], list[Example]]]


@dataclass
class _Known:
    """The texts of the splits so far, with their labels."""

    train: dict[int, Example]
    dev: dict[int, Example]
    test: dict[int, Example]

    @classmethod
    def of(cls, splits: Splits) -> _Known:
        return cls(*(_by_text(part) for part in (splits.train, splits.dev, splits.test)))


def _by_text(examples: Sequence[Example]) -> dict[int, Example]:
    return {example.key: example for example in examples}


def add_more(splits: Splits, data: Data, read: Read, hold_out: HoldOut) -> None:
    """Adds the examples of further files to splits, and notes what was left out."""
    for path in data.more_test:
        _add_held_out(splits, "test", read(path, data), data)
    for path in data.more_dev:
        _add_held_out(splits, "dev", read(path, data), data)
    for path in data.more:
        _add_train(splits, path, read(path, data), data, hold_out)


def _add_held_out(splits: Splits, name: str, rows: list[Example], data: Data) -> None:
    """Adds the rows of a further dev or test file; those that the split has are left out."""
    part: list[Example] = getattr(splits, name)
    own = _by_text(part)
    fresh = [row for row in rows if row.key not in own]
    later = _by_text(splits.test) if name == "dev" else {}
    leaks = [row for row in fresh if row.key in later]
    _refuse_leaks(leaks, "test", data)
    if data.leaks != "keep":
        fresh = [row for row in fresh if row.key not in later]
    fresh_keys = _by_text(fresh)
    earlier = splits.train + (splits.dev if name == "test" else [])
    learnt = [one for one in earlier if one.key in fresh_keys]
    if learnt and data.leaks == "refuse":
        _refuse_leaks([fresh_keys[one.key] for one in learnt], "train or dev", data)
    if learnt and data.leaks == "drop":
        splits.train = [one for one in splits.train if one.key not in fresh_keys]
        if name == "test":
            splits.dev = [one for one in splits.dev if one.key not in fresh_keys]
        splits.notes.append(
            f"{name}: {len(learnt):,} earlier examples also occur in the further file and are no "
            "longer learnt"
        )
    part.extend(fresh)
    known = f", {len(rows) - len(fresh):,} left out" if len(rows) > len(fresh) else ""
    splits.notes.append(f"{name}: {len(fresh):,} further examples{known}")


def _add_train(
    splits: Splits, path: str, rows: list[Example], data: Data, hold_out: HoldOut
) -> None:
    """Adds the rows of a further file to train and, unless there are further dev files, to dev."""
    known = _Known.of(splits)
    # rows of a dev set that was held out of train may come back with the rows beside them
    dev_leaks = bool(data.dev or data.more_dev)
    fresh: list[Example] = []
    same, leaks, changed = 0, 0, list[tuple[Example, Example]]()
    for row in rows:
        key = row.key
        if key in known.test or (dev_leaks and key in known.dev):
            where = "test" if key in known.test else "dev"
            _refuse_leaks([row], where, data)
            leaks += 1
            if data.leaks == "drop":
                continue
        before = known.train.get(key) or known.dev.get(key)
        if before is not None and before.label == row.label:
            same += 1
            continue
        if before is not None:
            changed.append((before, row))
        fresh.append(row)
    replaced = {row.key for _, row in changed}
    splits.train = [one for one in splits.train if one.key not in replaced]
    splits.dev = [one for one in splits.dev if one.key not in replaced]
    splits.leaks[path] += leaks if data.leaks == "drop" else 0
    held = list[Example]()
    if not data.more_dev:
        fresh, held = _held_out(fresh, data, hold_out)
    splits.train, splits.added = splits.train + fresh, len(fresh)
    splits.dev = splits.dev + held
    splits.notes += _notes(path, (len(fresh), len(held), same, leaks), changed)


def _held_out(
    rows: list[Example], data: Data, hold_out: HoldOut
) -> tuple[list[Example], list[Example]]:
    """Train and dev of a file; nothing is held out of very few rows."""
    if len(rows) < FEWEST_FOR_DEV:
        return rows, []
    try:
        return hold_out(rows, data)
    except DataError:  # no class has enough of them
        return rows, []


def _notes(
    path: str, counts: tuple[int, int, int, int], changed: Sequence[tuple[Example, Example]]
) -> list[str]:
    train, dev, same, leaks = counts
    own = f"{path}: {train:,} new examples for train"
    own += f", {dev:,} for dev" if dev else ""
    own += f"; {same:,} left out because train or dev has them" if same else ""
    own += f"; {leaks:,} also occur in dev or test" if leaks else ""
    notes = [own]
    if changed:
        some = [
            f"line {row.line}: {_short(one.label)} → {_short(row.label)}"
            for one, row in changed[:SHOWN]
        ]
        more = " …" if len(changed) > SHOWN else ""
        notes.append(
            f"{path}: {len(changed):,} texts have another label than before, which counts from now "
            f"on ({'; '.join(some)}{more})"
        )
    return notes


def _short(label: Any) -> str:
    """A label in a note; tags of a long sentence are cut."""
    text = repr(label)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _refuse_leaks(rows: Sequence[Example], where: str, data: Data) -> None:
    """Raises DataError for new rows whose text stands in a split they must not be in, where the
    recipe asks for that.
    """
    if not rows or data.leaks != "refuse":
        return
    text = " ".join(rows[0].text.split())
    raise DataError(
        f"this example also occurs in {where}: {text[:60]!r}; learning it would make the scores "
        "there too good",
        file=rows[0].file,
        line=rows[0].line,
        remedy='Delete such rows, or leave them out of train with data.leaks = "drop" '
        "(--data.leaks drop).",
    )
