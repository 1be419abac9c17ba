"""A text → another text: translation, and any rewriting that examples show.

A decoder with attention to the encoder's states writes the answer; both share one vocabulary and
its embeddings. Answers are found with a beam.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tasklm.recipe.data_sections import Data, Kind
from tasklm.recipe.model_sections import LONGEST_ROW
from tasklm.tasks.base import (
    NONE,
    TASKS,
    Answer,
    Floats,
    Metric,
    Tokeniser,
    Unit,
    Untuned,
)
from tasklm.tasks.examples import Example, Finding, Splits
from tasklm.tasks.readers.text_pairs import read_pairs
from tasklm.tasks.rivals import Unranked
from tasklm.tasks.saved import number_in, text_in, whole_in
from tasklm.tasks.text_metrics import METRICS, text_metric
from tasklm.tasks.writing import (
    MOST_BEAM,
    Search,
    TextUnit,
    Writes,
    Written,
    candidates,
    text_rows,
)

if TYPE_CHECKING:
    from torch import Tensor, nn

    from tasklm.tasks.consistency.writing import WritingConsistency

TRANSFORMER, LSTM = DECODERS = ("transformer", "lstm")
USUAL_LAYERS = {TRANSFORMER: 2, LSTM: 1}
MOST_LAYERS = 256
ROOM = 1.2  # times the ratio of lengths that nearly all training texts keep to
NEARLY_ALL = 0.999
MOST_STRETCH = 1000.0
ODD = 3.0  # times longer or shorter than usual: a pair that may not belong together
# of the texts that are written for sources without labels; those that are longer teach nothing
TEACHING_BEAM, TEACHING_STRETCH = 10, 0.5
_SHOWN = 3


@TASKS.register("translate")
class Translate(Unranked, Writes, Untuned):
    """Texts to texts; the label of an example is a tuple of all right texts, an answer's a text."""

    kind: ClassVar[str] = "translate"
    classifies, pairs, cased, packs, reads_vectors = False, False, True, False, False
    metrics: tuple[str, ...] = METRICS
    together, wide_width = 1, 0
    sets, elsewhere = None, None
    setless = (
        "an answer can be any text, so a set would be endless. Leave --coverage "
        "out; --n-best gives the best candidates"
    )
    unsmoothed = incomparable = ""
    unranked = "generated texts have no two answers with comparable probabilities"

    def __init__(self, decoder: str, layers: int, search: Search) -> None:
        self.decoder, self.layers, self.search = decoder, layers, search
        self.labels: list[str] = []

    @classmethod
    def read(cls, path: Path, data: Data, labelled: bool = True) -> tuple[list[Example], list[str]]:
        """The pairs of texts of a table, and notes."""
        return read_pairs(path, data, labelled)

    @classmethod
    def from_examples(cls, train: Sequence[Example], settings: Kind) -> Translate:
        """The task; answers may be as long, beside their sources, as nearly all of train are."""
        ratios = [len(one.texts[1]) / max(1, len(one.texts[0])) for one in train]
        usual = float(np.quantile(ratios, NEARLY_ALL)) if ratios else 1.0
        stretch = round(min(MOST_STRETCH, ROOM * usual), 3)
        search = Search(settings.beam, settings.length_penalty, settings.written_tokens, stretch)
        layers = settings.decoder_layers or USUAL_LAYERS[settings.decoder]
        return cls(settings.decoder, layers, search)

    def example_of(self, text: str) -> Example:
        """The example of a text to read."""
        return Example((text,), None)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Translate:
        """The task that `to_dict` described."""
        decoder = text_in(values, "decoder")
        if decoder not in DECODERS:
            raise ValueError(f"decoder of the task is none of {', '.join(DECODERS)}")
        penalty, stretch = number_in(values, "length_penalty"), number_in(values, "stretch")
        if not 0.0 <= penalty <= 10.0 or not 0.0 <= stretch <= MOST_STRETCH:
            raise ValueError("length_penalty or stretch of the task is out of bounds")
        longest = whole_in(values, "written_tokens", 1, LONGEST_ROW)
        search = Search(whole_in(values, "beam", 1, MOST_BEAM), penalty, longest, stretch)
        return cls(decoder, whole_in(values, "decoder_layers", 1, MOST_LAYERS), search)

    def to_dict(self) -> dict[str, Any]:
        """The kind, its decoder and how it searches."""
        search = self.search
        return {
            "kind": self.kind,
            "decoder": self.decoder,
            "decoder_layers": self.layers,
            "beam": search.beam,
            "length_penalty": search.penalty,
            "written_tokens": search.longest,
            "stretch": search.stretch,
        }

    def searching(self, search: Search) -> Translate:
        """The same task with another search."""
        return type(self)(self.decoder, self.layers, search)

    def audit(self, splits: Splits) -> list[Finding]:
        """Pairs of odd lengths, sources that stand in train too, and texts that are copies."""
        return [_lengths(splits), _seen_sources(splits), _copies(splits)]

    def classes(self, label: Any) -> list[str]:
        """Empty: this kind has no classes."""
        return []

    def encode(self, examples: Sequence[Example], tokeniser: Tokeniser, length: int) -> list[Unit]:
        """A row for each source, cut at its end; targets are the tokens of the first right text, or
        of the one that was written.
        """
        sources = tokeniser.encode([example.texts[0] for example in examples])
        targets = None
        if examples and all(example.label is not None for example in examples):
            targets = tokeniser.encode([_to_write(example.label) for example in examples])
        return list(text_rows(sources, targets, tokeniser, length))

    def head(self, width: int, dropout: float, normed: bool = False) -> nn.Module:
        """A fresh decoder."""
        if self.decoder == LSTM:
            from tasklm.tasks.heads.lstm_decoder import LstmDecoder

            return LstmDecoder(width, self.layers, dropout, self.search)
        from tasklm.tasks.heads.transformer_decoder import TransformerDecoder

        return TransformerDecoder(width, self.layers, dropout, self.search)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The cross-entropy of each token after the right ones before it, summed over tokens."""
        from tasklm.tasks.heads import losses

        return losses.cross_entropy(outputs, targets)

    def count(self, targets: Tensor) -> int:
        """The number of tokens to write, the ends of texts among them."""
        return int((targets != NONE).sum())

    def taught_loss(self, outputs: Tensor, taught: Tensor, targets: Tensor) -> Tensor:
        """The cross-entropy against other probabilities of each token, summed over tokens."""
        from tasklm.tasks.heads import soft_losses

        return soft_losses.soft_cross_entropy(outputs, taught, targets != NONE)

    def lesson(self, outputs: Floats) -> Floats:
        """The candidates of a search; teachers of this kind are refused."""
        return outputs

    def consistency(self) -> WritingConsistency:
        """What the primary decoder writes with a wide beam is right."""
        from tasklm.tasks.consistency.writing import WritingConsistency

        stretch = TEACHING_STRETCH * self.search.stretch
        search = replace(self.search, beam=TEACHING_BEAM, best=1, stretch=stretch)
        return WritingConsistency(search)

    def keep(self, outputs: Floats) -> Floats:
        """The candidates of a search (beam, 2 + tokens)."""
        return np.copy(outputs[0])

    def answers(
        self, examples: Sequence[Example], units: Sequence[Unit], predictions: Sequence[Any]
    ) -> list[Answer]:
        """The best text for each example with its score, and the best candidates if several are
        asked for. "unread" counts tokens of the source that did not fit into a row; "unfinished"
        says that the text reached its limit without an end.
        """
        return [self._answer(unit, rows) for unit, rows in zip(units, predictions, strict=True)]

    def _answer(self, unit: Unit, rows: Floats) -> Answer:
        assert isinstance(unit, TextUnit)  # `encode` makes no others
        best_ones = candidates(rows, unit.vocabulary.sep)
        by_text: dict[str, dict[str, Any]] = {}  # several hypotheses may spell the same text
        for one in best_ones or [Written((), 0.0, False)]:
            entry = _candidate(unit, one)
            by_text.setdefault(entry["text"], entry)
        listed = list(by_text.values())[: self.search.best]
        answer: Answer = {"target": listed[0].pop("text"), **listed[0]}
        if self.search.best > 1:
            listed[0] = {"text": answer["target"], **listed[0]}
            answer["candidates"] = listed
        if unit.unread:
            answer["unread"] = unit.unread
        return answer

    def label_of(self, answer: Answer) -> str:
        """The text."""
        return str(answer["target"])

    def metric(self, name: str) -> Metric:
        """The metric bleu, chrf or bleu_tokenised; raises RecipeError for others."""
        return text_metric(name)

    def baselines(
        self,
        train: Sequence[Example],
        held: Mapping[str, Sequence[Example]],
        metric: str,
        wide: Any = None,
    ) -> dict[str, dict[str, list[Any]]]:
        """The source itself, the text of the nearest training source, and word for word."""
        from tasklm.tasks.baselines.copied_texts import Dictionary, NearestText

        nearest, dictionary = NearestText(train), Dictionary(train)
        sources = {name: [one.texts[0] for one in part] for name, part in held.items()}
        return {
            "source as it is": sources,
            "text of the nearest source": {
                name: nearest.of(part) for name, part in sources.items()
            },
            "word for word": {
                name: [dictionary.of(text) for text in part] for name, part in sources.items()
            },
        }

    def fit_wide(
        self, train: Sequence[Example], dev: Sequence[Example], metric: str, vectors: Any = None
    ) -> None:
        """None: this kind has no wide part."""
        return


def _to_write(label: Any) -> str:
    """The first right text, or the text of an answer."""
    return label if isinstance(label, str) else str(label[0])


def _candidate(unit: TextUnit, one: Written) -> dict[str, Any]:
    text = unit.vocabulary.decode(one.tokens).strip()
    entry: dict[str, Any] = {"text": text, "score": one.score}
    if not one.ended:
        entry["unfinished"] = True
    return entry


def _lengths(splits: Splits) -> Finding:
    pairs = [example.texts for example in splits.train]
    ratios = np.array([len(target) / max(1, len(source)) for source, target in pairs])
    usual = float(np.median(ratios))
    odd = np.flatnonzero((ratios > ODD * usual) | (ratios * ODD < usual))
    message = f"texts to write are usually {usual:.2f} times as long as their sources."
    if 100 * len(odd) < len(pairs):
        return Finding("ok", "lengths", message)
    odd_ones = tuple(
        f"{splits.train[number].file}, line {splits.train[number].line}: "
        f"{pairs[number][0][:60]!r} → {pairs[number][1][:60]!r}"
        for number in odd[:_SHOWN]
    )
    message += (
        f" {len(odd):,} of {len(pairs):,} pairs of train are {ODD:g} times longer or shorter: do "
        "they belong together?"
    )
    brief = f"{len(odd):,} pairs of train are of odd lengths: do they belong together?"
    return Finding("warning", "lengths", message, odd_ones, brief)


def _seen_sources(splits: Splits) -> Finding:
    known = {example.texts[0].strip().casefold() for example in splits.train}
    counts = []
    for name, part in splits.named().items():
        if name != "train":
            seen = sum(example.texts[0].strip().casefold() in known for example in part)
            counts += [f"{seen:,} of {len(part):,} in {name}"] * bool(seen)
    if not counts:
        return Finding("ok", "sources", "no source of dev or test occurs in train.")
    message = (
        f"sources that also occur in train, with the same or another text: {', '.join(counts)}. "
        "Scores on them say little; remove them where they are many."
    )
    brief = f"sources that also occur in train: {', '.join(counts)}"
    return Finding("warning", "sources", message, brief=brief)


def _copies(splits: Splits) -> Finding:
    same = sum(source.strip() == target.strip() for source, target in _pairs(splits))
    message = f"{same:,} of {len(splits.train):,} texts of train are copies of their sources."
    if 10 * same < len(splits.train):
        return Finding("ok", "copies", message)
    brief = f"{same:,} texts of train are copies of their sources: are the columns right?"
    return Finding("warning", "copies", message + " Are the columns right?", brief=brief)


def _pairs(splits: Splits) -> list[tuple[str, ...]]:
    return [example.texts for example in splits.train]
