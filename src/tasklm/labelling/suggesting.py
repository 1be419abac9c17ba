"""What to label next, from a run and a pile of texts.

pile ── draw (bounded, without what is labelled) ── near copies out ── doubts ── choose ── sheet
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tasklm.corpus.dedupe import text_key
from tasklm.errors import DataError, RecipeError
from tasklm.evaluate.scores import from_dict
from tasklm.evaluate.training_data import splits_of
from tasklm.forecasting.growth import Growth, growth_of
from tasklm.labelling.choosing import Suggestion, choose, without_near_copies
from tasklm.labelling.committee import committee_of
from tasklm.labelling.doubts import Doubt, doubts
from tasklm.labelling.drawn import Drawn, draw
from tasklm.labelling.pile import Pile
from tasklm.recipe.data_sections import Data
from tasklm.run_folder import SCORES, recipe_of
from tasklm.serve.finished_run import model_of, run_of
from tasklm.serve.inputs import Input, example_from
from tasklm.serve.predictor import Predictor
from tasklm.storage.files import read_json
from tasklm.storage.safe_reading import home_path
from tasklm.tasks.examples import Example, Splits
from tasklm.tasks.readers.several import sources_of
from tasklm.tasks.readers.sheets import SheetColumns
from tasklm.tasks.readers.splits import read_splits, resolved
from tasklm.tasks.several import members_of
from tasklm.tracking import Tracker

CANDIDATES = 5_000  # texts that are drawn from the pile and answered
TIMES = 20  # candidates for each text that is asked for, where that is more
MOST = 10_000  # texts that may be asked for at once
SECONDS = 5.0  # for the forecast of more labels, where the run has none
AT_ONCE = 256  # texts that are answered between two looks at the clock


@dataclass(frozen=True)
class Suggestions:
    """The texts to label next, the one that helps most first, and what was left out."""

    suggestions: tuple[Suggestion, ...]
    columns: SheetColumns
    read: int  # texts of the pile
    labelled: int  # of these, left out because they stand in train, dev or test
    copies: int  # left out as copies of other candidates
    near_copies: int  # left out as near copies of labelled texts or of other candidates
    candidates: int  # texts that were compared

    def sentence(self) -> str:
        """What was read and left out, in plain words."""
        parts = [f"{self.read:,} texts read"]
        for count, why in (
            (self.labelled, "occur in train, dev or test"),
            (self.copies, "are copies"),
            (self.near_copies, "are near copies"),
        ):
            if count:
                parts.append(f"{count:,} {why}")
        left = self.read - self.labelled - self.copies - self.near_copies
        if left > self.candidates:
            parts.append(f"{self.candidates:,} drawn and compared")
        return f"{'; '.join(parts)}; {len(self.suggestions):,} chosen"


@dataclass(frozen=True)
class Labeller:
    """A finished run that says which texts should be labelled next."""

    run: Path
    predictor: Predictor
    committee: Sequence[Predictor]
    splits: Splits
    columns: SheetColumns
    data: Data  # of the training file

    @classmethod
    def of(cls, folder: Path, name: str = "") -> Labeller:
        """That of a run, or of the named one of its several tasks."""
        run = run_of(folder)
        whole = model_of(run)
        members = [member.name for member in members_of(whole.task)]
        if members and name not in members:
            listed = ", ".join(members)
            raise RecipeError([f"the model has several tasks; name one with --task: {listed}"])
        predictor = whole.of(name) if name or members else whole
        if predictor.task.unranked:
            predictor.task.rivals({})  # which says why, and what to do
        splits = splits_of(run, whole.task, f"train again: tasklm report {run}")
        recipe = recipe_of(run)
        data = resolved(recipe.data)
        if members:
            data = next(one.data for one in sources_of(recipe) if one.name == name)
            splits = read_splits(data)
        columns = predictor.task.sheet(home_path(data.train), data)
        committee = committee_of(run, predictor, name)
        return cls(run, predictor, committee, splits, columns, data)

    def pile(self, paths: Sequence[str], text_column: str = "") -> Pile:
        """Files and folders of texts without labels."""
        data = Data(kind=self.data.kind, text_column=text_column)
        return Pile(tuple(paths), self.predictor.task, data, self.columns)

    def from_pile(self, pile: Pile, count: int, tracker: Tracker) -> Suggestions:
        """Suggestions from files, with progress by their bytes."""
        with tracker.progress("reading texts", pile.bytes) as bar:
            drawn = self._draw(pile.examples(bar.advance), count)
        return self._choose(drawn, count, tracker)

    def from_texts(self, texts: Iterable[Input], count: int, tracker: Tracker) -> Suggestions:
        """Suggestions from texts, pairs or rows that a program passes in."""
        task, data = self.predictor.task, self.predictor.data
        examples = (example_from(one, task, data) for one in texts)
        drawn = self._draw((one for one in examples if one.text.strip()), count)
        return self._choose(drawn, count, tracker)

    def outlook(self, tracker: Tracker) -> str:
        """What more labels would bring, in one line: as the run measured it, or measured now in a
        few seconds.
        """
        scores = self.run / SCORES
        known = from_dict(read_json(scores)).growth if scores.exists() else {}
        if "gain" in known.get("twice", {}):
            return Growth.from_dict(known).sentence()
        metric = str(self.predictor.loaded.config["about"]["metric"])
        with tracker.progress("measuring what more labels would bring"):
            try:
                growth = growth_of(self.predictor.task, self.splits, metric, SECONDS)
            except DataError as error:
                return f"what more labels would bring is not known: {error.problem}"
        return growth.sentence()

    @property
    def _labelled(self) -> list[Example]:
        return [*self.splits.train, *self.splits.dev, *self.splits.test]

    def _draw(self, examples: Iterable[Example], count: int) -> Drawn:
        if not 1 <= count <= MOST:
            raise RecipeError([f"--n must be from 1 to {MOST:,}, not {count}"])
        keys = {text_key(example.text) for example in self._labelled}
        return draw(examples, keys, max(CANDIDATES, TIMES * count))

    def _choose(self, drawn: Drawn, count: int, tracker: Tracker) -> Suggestions:
        with tracker.progress("looking for near copies"):
            candidates = without_near_copies(drawn.examples, self._labelled)
        if not candidates:
            raise DataError(
                f"none of the {drawn.read:,} texts is new: all occur in train, dev or test, or "
                "nearly so",
                remedy="Name other texts with --from.",
            )
        with tracker.progress("answering", len(candidates)) as bar:
            answered: list[Doubt] = []
            for start in range(0, len(candidates), AT_ONCE):
                block = candidates[start : start + AT_ONCE]
                answered += doubts(self.committee, block)
                bar.advance(len(block))
        with tracker.progress("choosing"):
            chosen = choose(candidates, answered, self._labelled, count)
        return Suggestions(
            tuple(chosen),
            self.columns,
            drawn.read,
            drawn.labelled,
            drawn.copies,
            len(drawn.examples) - len(candidates),
            len(candidates),
        )
