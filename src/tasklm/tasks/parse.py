"""A dependency tree for each sentence: the head of every word, and its relation to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tasklm.corpus.tables import kind_of
from tasklm.errors import DataError, RecipeError
from tasklm.recipe.data_sections import Data, Kind
from tasklm.tasks.answer_sets import SETLESS_WORDS
from tasklm.tasks.base import (
    NONE,
    TASKS,
    Answer,
    Elsewhere,
    Floats,
    Label,
    Metric,
    Tokeniser,
    Unit,
    Untuned,
)
from tasklm.tasks.baselines.usual_arcs import Arc, Neighbours, UsualArcs, most
from tasklm.tasks.examples import Example, Finding, Splits, first_few
from tasklm.tasks.heads.trees import UNKNOWN, best_tree, tree_faults
from tasklm.tasks.metrics import tree_metric
from tasklm.tasks.readers.conll import CONLLU_FILES, FORM, HEAD, Sentence, read_conllu
from tasklm.tasks.readers.conll import RELATION as RELATION_FIELD
from tasklm.tasks.readers.texts import left_out
from tasklm.tasks.readers.word_rows import (
    HEAD_NAMES,
    RELATION_NAMES,
    SHOWN,
    are_characters,
    filled,
    long_sentences,
    pieces_of,
    read_unlabelled,
    read_word_lists,
    unknown_names,
    word_example,
    words_of,
)
from tasklm.tasks.rivals import Unranked
from tasklm.tasks.saved import names_in, text_in, truth_in
from tasklm.tasks.text_lessons import SentenceUnit, TaughtTrees

if TYPE_CHECKING:
    from torch import Tensor, nn

    from tasklm.tasks.consistency.trees import TreeConsistency

DIGITS = 9  # of the number of a word, at most


@TASKS.register("parse")
class Parse(Unranked, TaughtTrees, Untuned):
    """Dependency parsing; the label of an example is a list of (head, relation), a head being the
    number of a word from 1, or 0.

    A sentence longer than a row is cut at its end. In training, a word whose head is beyond the cut
    is ignored; in an answer, the words beyond it are attached to the child of the root, with the
    most frequent relation, and "unread" counts them.
    """

    kind: ClassVar[str] = "parse"
    classifies, pairs, cased = False, False, True
    unranked = "trees are predicted without probabilities"
    reads_vectors = False
    sets, setless = None, SETLESS_WORDS
    metrics: tuple[str, ...] = ("las", "uas")
    packs: bool = False
    wide_width = 0
    together = 1

    def __init__(
        self, labels: Sequence[str], usual: str, punctuation: bool = False, characters: bool = False
    ) -> None:
        self.labels = list(labels)
        self.usual = usual
        self.punctuation = punctuation
        self.characters = characters
        self._number = {label: number for number, label in enumerate(self.labels)}

    @property
    def elsewhere(self) -> Elsewhere | None:
        """None: answers are searched for."""
        return None

    @classmethod
    def read(cls, path: Path, data: Data, labelled: bool = True) -> tuple[list[Example], list[str]]:
        """The sentences of a table of lists or a CoNLL-U file, and notes."""
        if not labelled:
            return read_unlabelled(path, data)
        if kind_of(path) in CONLLU_FILES:
            examples = [_conllu_example(sentence, path) for sentence in read_conllu(path)]
            return examples, ["words: field FORM, heads: field HEAD, relations: field DEPREL"]
        columns, rows = read_word_lists(path, data, [HEAD_NAMES, RELATION_NAMES])
        examples, empty = [], []
        for line, words, (heads, relations) in rows:
            arcs = [
                (_number(head, path, line, word), _name(relation, path, line, word))
                for word, (head, relation) in enumerate(zip(heads, relations, strict=True), 1)
            ]
            if words:
                examples.append(word_example(words, arcs, path, line))
            else:
                empty.append(line)
        words_column, heads_column, relations_column = columns
        note = (
            f"words: column {words_column!r}, heads: column {heads_column!r}, "
            f"relations: column {relations_column!r}"
        )
        return examples, [note, *left_out(empty)]

    @classmethod
    def from_examples(cls, train: Sequence[Example], settings: Kind) -> Parse:
        """The task with the relations of train in alphabetical order."""
        counts = _relation_counts(train)
        return cls(
            sorted(counts),
            most(counts),
            settings.punctuation,
            are_characters(example.words for example in train),
        )

    def example_of(self, text: str) -> Example:
        """The sentence, which is split into words later."""
        return Example((text,), None)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Parse:
        """The task that `to_dict` described."""
        labels, usual = names_in(values, "labels"), text_in(values, "usual")
        return cls(labels, usual, truth_in(values, "punctuation"), truth_in(values, "characters"))

    def to_dict(self) -> dict[str, Any]:
        """What a saved model must know."""
        settings = {
            "usual": self.usual,
            "punctuation": self.punctuation,
            "characters": self.characters,
        }
        return {"kind": self.kind, "labels": self.labels, **settings}

    def audit(self, splits: Splits) -> list[Finding]:
        """Counts of relations, those missing from train, heads that do not form a tree, long
        sentences.
        """
        counts = _relation_counts(splits.train).most_common()
        relations = first_few([f"{relation} {count:,}" for relation, count in counts], 10)
        message = f"{len(counts)} relations in train: {relations}; sentences: {splits.sizes()}."
        return [
            Finding("ok", "relations", message),
            *unknown_names("relations", set(self.labels), splits, self.classes),
            *_broken_trees(splits),
            *long_sentences(splits, "are only partly parsed"),
        ]

    def classes(self, label: Sequence[Arc]) -> list[str]:
        """The relations."""
        return [relation for _, relation in label]

    def encode(self, examples: Sequence[Example], tokeniser: Tokeniser, length: int) -> list[Unit]:
        """One row for each sentence: its places are [CLS], for the root, and the first pieces of
        the words that fit.
        """
        sentences = [words_of(example, self.characters)[0] for example in examples]
        units: list[Unit] = []
        for number, (example, pieces) in enumerate(
            zip(examples, pieces_of(sentences, tokeniser, length - 2), strict=True)
        ):
            tokens, places = [tokeniser.cls], [0]
            for word in pieces[: filled(pieces, length - 2)[0][1]]:
                places.append(len(tokens))
                tokens += word
            targets = None
            if example.label is not None:
                targets = self._targets(example.label, len(places))
            row = [*tokens, tokeniser.sep]
            units.append(SentenceUnit(row, places, targets, example=number, words=len(pieces)))
        return units

    def _targets(self, label: Sequence[Arc], places: int) -> NDArray[np.int64]:
        targets = np.full((places, 2), NONE, np.int64)
        for place, (head, relation) in enumerate(label[: places - 1], 1):
            if head >= places:
                head = UNKNOWN
            targets[place] = head, self._number.get(relation, UNKNOWN)
        return targets

    def head(self, width: int, dropout: float, normed: bool = False) -> nn.Module:
        """A biaffine head: outputs (rows, places, places, 1 + relations)."""
        from tasklm.tasks.heads.biaffine import BiaffineHead

        return BiaffineHead(width, len(self.labels), dropout)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The cross-entropy of heads and of relations, summed over words."""
        from tasklm.tasks.heads.biaffine import arc_loss

        return arc_loss(outputs, targets)

    def count(self, targets: Tensor) -> int:
        """The number of words whose head is in their row."""
        return int((targets[..., 0] >= 0).sum())

    def consistency(self) -> TreeConsistency:
        """Heads and relations, seen from both sides of dependent and head."""
        from tasklm.tasks.consistency.trees import TreeConsistency

        return TreeConsistency(len(self.labels))

    def keep(self, outputs: Floats) -> NDArray[np.int64]:
        """An array (words, 2): the heads of the best tree, and the best relation to each."""
        outputs = outputs[:, : len(outputs)]  # heads too
        heads = best_tree(outputs[..., 0])
        relations = outputs[np.arange(1, len(outputs)), heads, 1:].argmax(-1)
        return np.stack([heads, relations], 1)

    def answers(
        self, examples: Sequence[Example], units: Sequence[Unit], predictions: Sequence[Any]
    ) -> list[Answer]:
        """Words, heads (from 1; 0: root) and relations of each example, and the same as CoNLL-U."""
        arcs_of = {unit.example: arcs for unit, arcs in zip(units, predictions, strict=True)}
        return [self._answer(example, arcs_of[number]) for number, example in enumerate(examples)]

    def _answer(self, example: Example, arcs: NDArray[np.int64]) -> Answer:
        words, _ = words_of(example, self.characters)
        heads = [int(head) for head in arcs[:, 0]]
        relations = [self.labels[number] for number in arcs[:, 1]]
        unread = len(words) - len(heads)
        if unread:
            heads += [heads.index(0) + 1] * unread
            relations += [self.usual] * unread
        rows = [
            f"{number}\t{word}\t_\t_\t_\t_\t{head}\t{relation}\t_\t_\n"
            for number, (word, head, relation) in enumerate(
                zip(words, heads, relations, strict=True), 1
            )
        ]
        text = "".join([f"# text = {' '.join(example.text.split())}\n", *rows, "\n"])
        answer: Answer = {"words": words, "heads": heads, "relations": relations, "conllu": text}
        if unread:
            answer["unread"] = unread
        return answer

    def label_of(self, answer: Answer) -> list[Arc]:
        """The (head, relation) of each word."""
        return list(zip(answer["heads"], answer["relations"], strict=True))

    def metric(self, name: str) -> Metric:
        """The metric las or uas; raises RecipeError for others."""
        if name not in self.metrics:
            raise RecipeError(
                [f"evaluate.metric = {name!r}: the metrics of trees are {', '.join(self.metrics)}"]
            )
        return tree_metric(name, self.punctuation)

    def baselines(
        self,
        train: Sequence[Example],
        held: Mapping[str, Sequence[Example]],
        metric: str,
        wide: Any = None,
    ) -> dict[str, dict[str, list[Label]]]:
        """The predictions of the neighbour as head, and of the most frequent arc of each word."""
        neighbour, usual = Neighbours(train), UsualArcs(train)
        return {
            f"head is the word {neighbour.side}": {
                name: [neighbour.arcs(example) for example in part] for name, part in held.items()
            },
            "most frequent arc of the word": {
                name: [usual.arcs(example) for example in part] for name, part in held.items()
            },
        }

    def fit_wide(
        self, train: Sequence[Example], dev: Sequence[Example], metric: str, vectors: Any = None
    ) -> None:
        """None: this kind has no wide part."""
        return


def _relation_counts(examples: Sequence[Example]) -> Counter[str]:
    arcs = chain.from_iterable(example.label for example in examples)
    return Counter(relation for _, relation in arcs)


def _conllu_example(sentence: Sentence, path: Path) -> Example:
    line = sentence.line
    heads = [_number(head, path, line, word) for word, head in enumerate(sentence.column(HEAD), 1)]
    relations = [
        _name(name, path, line, word)
        for word, name in enumerate(sentence.column(RELATION_FIELD), 1)
    ]
    arcs = list(zip(heads, relations, strict=True))
    return word_example(sentence.column(FORM), arcs, path, line)


def _number(value: Any, path: Path, line: int, word: int) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= DIGITS:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**DIGITS:
        return value
    remedy = "Give each word the number of its head, counted from 1, or 0 for the root."
    raise DataError(
        f"the head of word {word} is {value!r}, not a number", file=path, line=line, remedy=remedy
    )


def _name(value: Any, path: Path, line: int, word: int) -> str:
    if isinstance(value, str) and value.strip() and value != "_":
        return value.strip()
    remedy = "Give each word the name of its relation to its head, such as nsubj."
    raise DataError(
        f"the relation of word {word} is {value!r}", file=path, line=line, remedy=remedy
    )


def _broken_trees(splits: Splits) -> list[Finding]:
    broken = []
    for part in splits.named().values():
        for example in part:
            if faults := tree_faults([head for head, _ in example.label]):
                broken.append(f"{example.file}, line {example.line}: {'; '.join(faults[:SHOWN])}")
    if not broken:
        return [Finding("ok", "trees", "the heads of every sentence form a tree with one root.")]
    message = (
        f"the heads of {len(broken):,} sentences do not form a tree "
        f"with one root. Correct or delete these sentences."
    )
    return [Finding("error", "trees", message, tuple(broken[:SHOWN]))]
