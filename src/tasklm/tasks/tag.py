"""A tag for each word: entities, chunks, parts of speech.

A linear head, or a CRF, on the first piece of each word.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tasklm.corpus.tables import kind_of
from tasklm.errors import RecipeError
from tasklm.recipe.data_sections import Data, Kind
from tasklm.tasks.answer_sets import SETLESS_WORDS
from tasklm.tasks.base import (
    NONE,
    TASKS,
    Answer,
    Elsewhere,
    Floats,
    Metric,
    Tokeniser,
    Unit,
    Untuned,
)
from tasklm.tasks.baselines.text_vectors import WordVectors
from tasklm.tasks.baselines.usual_tags import UsualTags
from tasklm.tasks.baselines.wide import labels_by
from tasklm.tasks.baselines.wide_fitting import FittedWide, fit_tags
from tasklm.tasks.examples import Example, Finding, Splits, first_few
from tasklm.tasks.heads.tag_schemes import (
    BIOES,
    PLAIN,
    converted,
    entities,
    faults,
    learned,
    scheme_of,
)
from tasklm.tasks.heads.tag_sequences import best_tags, log_marginals
from tasklm.tasks.metrics import tag_metric
from tasklm.tasks.readers.conll import (
    COLUMN_FILES,
    CONLLU_FILES,
    FORM,
    UPOS,
    read_columns,
    read_conllu,
)
from tasklm.tasks.readers.texts import left_out
from tasklm.tasks.readers.word_rows import (
    SHOWN,
    TAG_NAMES,
    are_characters,
    filled,
    long_sentences,
    pieces_of,
    read_unlabelled,
    read_word_lists,
    shown_word,
    tag_name,
    unknown_names,
    word_example,
    words_of,
)
from tasklm.tasks.rivals import Unranked
from tasklm.tasks.saved import names_in, text_in, truth_in

if TYPE_CHECKING:
    from torch import Tensor, nn

    from tasklm.tasks.consistency.words import TagConsistency

FEW = 5  # words with a tag

Tags = list[str]


@TASKS.register("tag")
class Tag(Unranked, Untuned):
    """Sequence labelling; the label of an example is the list of its words' tags."""

    kind: ClassVar[str] = "tag"
    classifies, pairs, cased = False, False, True
    reads_vectors = True
    sets, setless = None, SETLESS_WORDS
    unsmoothed, incomparable = "", ""
    unranked = "tags are predicted without probabilities"
    metrics: tuple[str, ...] = ("entity_f1", "accuracy")  # plain tags have accuracy alone
    packs: bool = True  # a CRF looks at neighbouring places
    together = 1

    def __init__(
        self,
        labels: Sequence[str],
        scheme: str,
        crf: bool = False,
        characters: bool = False,
        recoded: bool = False,
    ) -> None:
        """`scheme` is that of examples and answers; `recoded`: the labels are in BIOES instead."""
        self.labels, self.scheme, self.crf, self.characters = list(labels), scheme, crf, characters
        self.recoded = recoded
        self.packs = not crf
        self.wide_width = 0 if crf else len(self.labels)  # those of a CRF are of pairs of tags
        if crf:
            reason = "a CRF learns sequences of tags, not single ones (kind.crf)"
            self.unsmoothed = self.incomparable = reason
        if scheme == PLAIN:
            self.metrics = ("accuracy",)
        self._number = {label: number for number, label in enumerate(self.labels)}

    @property
    def elsewhere(self) -> Elsewhere | None:
        """The equivalent in other programs: token classification; none for a CRF."""
        if self.crf:
            return None
        meaning = (
            "Logits are for each token; the tag of a word is that of the first token of the word."
        )
        return Elsewhere("token-classification", "ForTokenClassification", meaning, of_words=True)

    @classmethod
    def read(cls, path: Path, data: Data, labelled: bool = True) -> tuple[list[Example], list[str]]:
        """The sentences of a table of lists, a CoNLL or a CoNLL-U file, and notes."""
        if not labelled:
            return read_unlabelled(path, data)
        kind = kind_of(path)
        if kind in CONLLU_FILES:
            examples = [
                word_example(sentence.column(FORM), sentence.column(UPOS), path, sentence.line)
                for sentence in read_conllu(path)
            ]
            return examples, ["words: field FORM, tags: field UPOS"]
        if kind in COLUMN_FILES:
            examples = [
                word_example(sentence.column(0), sentence.column(-1), path, sentence.line)
                for sentence in read_columns(path)
            ]
            return examples, ["words: first column, tags: last column"]
        columns, rows = read_word_lists(path, data, [TAG_NAMES])
        examples, empty = [], []
        for line, words, (tags,) in rows:
            if words:
                names = [tag_name(tag, columns[1], path, line) for tag in tags]
                examples.append(word_example(words, names, path, line))
            else:
                empty.append(line)
        note = f"words: column {columns[0]!r}, tags: column {columns[1]!r}"
        return examples, [note, *left_out(empty)]

    @classmethod
    def from_examples(cls, train: Sequence[Example], settings: Kind) -> Tag:
        """The task with the tags of train in alphabetical order, and the scheme they are in."""
        scheme = scheme_of(example.label for example in train)
        recoded = settings.scheme == "bioes" and scheme != BIOES
        if recoded and scheme == PLAIN:
            problem = "the tags of train are plain ones, not those of spans (BIO, IOB1 or BIOES)"
            raise RecipeError([f"kind.scheme = 'bioes': {problem}; leave the key out"])
        sequences = [learned(example.label, recoded) for example in train]
        labels = sorted(set(chain.from_iterable(sequences)))
        characters = are_characters(example.words for example in train)
        return cls(labels, scheme, settings.crf, characters, recoded)

    def example_of(self, text: str) -> Example:
        """The sentence, which is split into words later."""
        return Example((text,), None)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Tag:
        """The task that `to_dict` described."""
        return cls(
            names_in(values, "labels"),
            text_in(values, "scheme"),
            truth_in(values, "crf"),
            truth_in(values, "characters"),
            "recoded" in values and truth_in(values, "recoded"),
        )

    def to_dict(self) -> dict[str, Any]:
        """What a saved model must know."""
        values: dict[str, Any] = {"kind": self.kind, "labels": self.labels, "scheme": self.scheme}
        values |= {"crf": self.crf, "characters": self.characters}
        if self.recoded:
            values["recoded"] = True
        return values

    def audit(self, splits: Splits) -> list[Finding]:
        """Counts of tags, tags missing from train, transitions that the scheme forbids, long
        sentences.
        """
        names = set(chain.from_iterable(example.label for example in splits.train))
        unknown = unknown_names("tags", names, splits, self.classes)
        return [
            *self._counts(splits),
            *unknown,
            self._illegal(splits),
            *long_sentences(splits, "are tagged in separate parts"),
        ]

    def _counts(self, splits: Splits) -> list[Finding]:
        tags = chain.from_iterable(example.label for example in splits.train)
        counts = Counter(tags).most_common()
        most = first_few([f"{tag} {count:,}" for tag, count in counts], 10)
        scheme = "" if self.scheme == PLAIN else f" in the scheme {self.scheme}"
        message = f"{len(counts)} tags{scheme} in train: {most}; sentences: {splits.sizes()}."
        findings = [Finding("ok", "tags", message)]
        few = [tag for tag, count in counts if count < FEW]
        if few:
            share = f"{len(few)} of {len(counts)} tags occur on"
            message = (
                f"{share} fewer than {FEW} words of train: {', '.join(map(repr, few[:10]))}. "
                "Add sentences with them, or merge or remove these tags."
            )
            brief = f"{share} fewer than {FEW} words: add some, or merge tags"
            findings.append(Finding("warning", "rare tags", message, brief=brief))
        return findings

    def _illegal(self, splits: Splits) -> Finding:
        if self.scheme == PLAIN:
            return Finding("ok", "tag sequences", "plain tags: any tag may follow any other.")
        faulty: list[str] = []
        counts: list[str] = []
        for name, part in splits.named().items():
            before = len(faulty)
            for example in part:
                if problems := faults(example.label, self.scheme):
                    place, problem = problems[0]
                    faulty.append(shown_word(example, place, problem))
            if len(faulty) > before:
                counts.append(f"{len(faulty) - before:,} of {len(part):,} sentences of {name}")
        if not faulty:
            message = f"all sentences follow the scheme {self.scheme}."
            return Finding("ok", "tag sequences", message)
        message = (
            f"{', '.join(counts)} break the rules of {self.scheme}. "
            "They are scored as conlleval repairs them; better correct the tags."
        )
        brief = f"{len(faulty):,} sentences break the rules of {self.scheme}: correct their tags"
        return Finding("warning", "tag sequences", message, tuple(faulty[:SHOWN]), brief)

    def classes(self, label: Tags) -> list[str]:
        """The tags."""
        return list(label)

    def encode(self, examples: Sequence[Example], tokeniser: Tokeniser, length: int) -> list[Unit]:
        """Rows whose places are the first pieces of words; a sentence that is too long continues in
        further rows. A row must have a place: for an example without words it is [CLS], whose
        answer is ignored.
        """
        sentences = [words_of(example, self.characters)[0] for example in examples]
        units = []
        for number, (example, pieces) in enumerate(
            zip(examples, pieces_of(sentences, tokeniser, length - 2), strict=True)
        ):
            targets = self._targets(example)
            for first, last in filled(pieces, length - 2):
                tokens, places = [tokeniser.cls], []
                for word in pieces[first:last]:
                    places.append(len(tokens))
                    tokens += word
                places = places or [0]
                part = None
                if targets is not None:
                    part = targets[first : first + len(places)]
                units.append(Unit([*tokens, tokeniser.sep], places, part, example=number))
        return units

    def _targets(self, example: Example) -> NDArray[np.int64] | None:
        """The numbers of the tags, NONE for unknown ones; None without a label."""
        if example.label is None:
            return None
        tags = learned(example.label, self.recoded)
        return np.array([self._number.get(tag, NONE) for tag in tags] or [NONE], np.int64)

    def head(self, width: int, dropout: float, normed: bool = False) -> nn.Module:
        """A linear head, `normed` one of two maps, with outputs (rows, places, tags); or a CRF's:
        (rows, places, tags, tags).
        """
        from tasklm.tasks.heads import crf, layers

        if self.crf:
            return crf.CrfHead(width, len(self.labels), dropout)
        if normed:
            return layers.TokenHead(width, len(self.labels), dropout, normed)
        return layers.TagHead(width, len(self.labels), dropout)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The cross-entropy summed over words, or the negative log-likelihood of the sequences."""
        from tasklm.tasks.heads import crf, losses

        if self.crf:
            return crf.negative_log_likelihood(outputs, targets)
        return losses.cross_entropy(outputs, targets)

    def taught_loss(self, outputs: Tensor, taught: Tensor, targets: Tensor) -> Tensor:
        """The cross-entropy against the teachers' probabilities of the tags, summed over words."""
        from tasklm.tasks.heads import crf, soft_losses

        if self.crf:
            return crf.soft_negative_log_likelihood(outputs, taught, targets)
        return soft_losses.soft_cross_entropy(outputs, taught, targets != NONE)

    def lesson(self, outputs: Floats) -> Floats:
        """The logits of each word's tags; of a CRF the logarithms of their probabilities."""
        return log_marginals(outputs) if self.crf else np.copy(outputs)

    def count(self, targets: Tensor) -> int:
        """The number of words."""
        return int((targets != NONE).sum())

    def consistency(self) -> TagConsistency:
        """Each word's tags, seen from five sides."""
        from tasklm.tasks.consistency.words import TagConsistency

        return TagConsistency(len(self.labels), self.crf)

    def keep(self, outputs: Floats) -> NDArray[np.int64]:
        """The numbers of the best tags: those of the best sequence from the scores of a CRF, or of
        each word where the outputs are a teacher's.
        """
        return best_tags(outputs) if outputs.ndim == 3 else outputs.argmax(-1)

    def answers(
        self, examples: Sequence[Example], units: Sequence[Unit], predictions: Sequence[Any]
    ) -> list[Answer]:
        """Words and tags of each example and, if tags are in a scheme, the entities, with exclusive
        ends.
        """
        tags: list[Tags] = [[] for _ in examples]
        for unit, numbers in zip(units, predictions, strict=True):
            tags[unit.example] += [self.labels[number] for number in numbers]
        return [self._answer(example, own) for example, own in zip(examples, tags, strict=True)]

    def _answer(self, example: Example, tags: Tags) -> Answer:
        words, bounds = words_of(example, self.characters)
        if self.recoded:
            tags = converted(tags, self.scheme)
        answer: Answer = {"words": words, "tags": tags[: len(words)]}
        if self.scheme != PLAIN:
            answer["entities"] = entities(example.text, bounds, answer["tags"])
        return answer

    def label_of(self, answer: Answer) -> Tags:
        """The tags."""
        return list(answer["tags"])

    def metric(self, name: str) -> Metric:
        """The metric entity_f1 (tags in a scheme) or accuracy; raises RecipeError for others."""
        if name not in self.metrics:
            known = ", ".join(self.metrics)
            raise RecipeError(
                [f"evaluate.metric = {name!r}: the metrics of these tags are {known}"]
            )
        return tag_metric(name)

    def baselines(
        self,
        train: Sequence[Example],
        held: Mapping[str, Sequence[Example]],
        metric: str,
        wide: Any = None,
    ) -> dict[str, dict[str, list[Tags]]]:
        """The predictions of the most frequent tag, of the most frequent tag of each word, and of
        the wide part.
        """
        usual = UsualTags(train)
        of_words = {
            name: [[usual.of(word) for word in example.words] for example in part]
            for name, part in held.items()
        }
        majority = {
            name: [[usual.overall] * len(example.words) for example in part]
            for name, part in held.items()
        }
        predictions = {"majority": majority, "most frequent tag of the word": of_words}
        if wide is not None:
            predictions["words around + linear"] = labels_by(wide, self, held)
        return predictions

    def fit_wide(
        self,
        train: Sequence[Example],
        dev: Sequence[Example],
        metric: str,
        vectors: WordVectors | None = None,
    ) -> FittedWide | None:
        """Fits a linear model of each word and its neighbours; a CRF's outputs are of pairs."""
        if self.crf:
            return None
        examples = [replace(one, label=learned(one.label, self.recoded)) for one in train]
        return fit_tags(examples, self.labels, self.characters, vectors)
