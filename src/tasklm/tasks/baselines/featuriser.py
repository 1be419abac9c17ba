"""The features of a linear model: TF-IDF of n-grams, words around markers, similarities.

Fitted on training examples, a featuriser turns any others into sparse matrices, the same each time.
Its number of features is bounded; it is saved as JSON and safetensors.

| block | features | of |
|---|---|---|
| words | words and word pairs of each text: topics | all |
| letters | runs of 3 to 5 letters: morphology and spelling of any language | single texts |
| marks | words in, before, between and after marks, their order and distance | texts with marks |
| shared | words in both texts, in one of them, pairs of words in which they differ | pairs |
| alike | similarities of two texts, each as a row of ramps, so that a line can bend | pairs |
| vectors | mean of word vectors that were learnt from raw text | single texts |

Those of `marks` are in marks.py, those of pairs in pair_words.py, vectors in text_vectors.py.
"""

from __future__ import annotations

import functools
import itertools
import json
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from tasklm.corpus.words import folded, words
from tasklm.errors import RunError
from tasklm.storage.files import write_bytes, write_text
from tasklm.storage.safe_reading import require_regular
from tasklm.tasks.base import Floats, Unit
from tasklm.tasks.baselines.counted import NOTHING, Count, Counted, keys_of
from tasklm.tasks.baselines.pair_words import bigrams, shared_words, similarities
from tasklm.tasks.baselines.text_vectors import TextVectors, WordVectors
from tasklm.tasks.examples import Example
from tasklm.tasks.marks import mark_words
from tasklm.tasks.saved import of_format

FORMAT = 1
MOST_FEATURES = 100_000  # of a block: those that most examples have
SHORTEST, LONGEST = 3, 5  # runs of letters
# examples that a run of letters or a pair of words of two texts must occur in: single ones are many
RARE = 2
RAREST = {"words": 1, "letters": RARE, "marks": 1, "shared": RARE}
# Characters of different long words, as scripts without spaces have them: their runs seldom repeat.
MOST_LONG, LONG = 1_000_000, 20
READ_BY = {"alike": ("words", "letters")}  # similarities: the blocks that they are computed from
Tokens = Callable[[Any], list[str]]  # of what an example gives a block: a text, or two


@dataclass(frozen=True)
class Block:
    """Tokens of one sort, and the inverse document frequency of each in train."""

    tokens: list[str]
    idf: Floats

    @cached_property
    def columns(self) -> dict[str, int]:
        """The number of each token."""
        return {token: number for number, token in enumerate(self.tokens)}

    @classmethod
    def of(cls, tokens: Sequence[str], counts: Any, rarest: int, most: int) -> tuple[Block, Any]:
        """The block of the `most` tokens that most rows have, and their counts.

        The columns of `counts` are the tokens, sorted by name; its rows are training examples.
        """
        frequency = np.bincount(counts.indices, minlength=counts.shape[1])
        enough = np.flatnonzero(frequency >= rarest)
        chosen = np.sort(enough[np.argsort(-frequency[enough], kind="stable")[:most]])
        idf = np.log((1 + counts.shape[0]) / (1 + frequency[chosen])) + 1
        return cls([tokens[number] for number in chosen], idf), counts[:, chosen]

    def tfidf(self, counts: Any) -> Any:
        """1 + log(count), times the weight of the token, in rows of length 1."""
        matrix = counts.astype(np.float64)
        matrix.data = (1 + np.log(matrix.data)) * self.idf[matrix.indices]
        rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        lengths = np.sqrt(np.bincount(rows, matrix.data * matrix.data, matrix.shape[0]))
        matrix.data /= np.where(lengths > 0, lengths, 1.0)[rows]
        return matrix


class Featuriser:
    """Blocks of features of examples of one kind."""

    def __init__(
        self,
        blocks: Mapping[str, Block],
        marks: Sequence[str],
        pairs: bool,
        vectors: TextVectors | None = None,
        counted: Counted = NOTHING,
    ) -> None:
        nothing = Block([], np.zeros(0))
        self.blocks = {"words": nothing, "letters": nothing, **blocks}
        self.marks = tuple(marks)
        self.pairs = pairs
        self.vectors = vectors
        self.counted = counted  # in training texts; not part of the model
        of_words = self.blocks["words"]
        self._idf = dict(zip(of_words.tokens, of_words.idf.tolist(), strict=True))

    @classmethod
    def fit(
        cls, train: Sequence[Example], marks: Sequence[str] = (), most: int = MOST_FEATURES
    ) -> Featuriser:
        """The featuriser of training examples, with at most so many features a block."""
        return cls._fit(train, marks, most)[0]

    @classmethod
    def fit_parts(
        cls,
        train: Sequence[Example],
        marks: Sequence[str] = (),
        most: int = MOST_FEATURES,
        vectors: WordVectors | None = None,
        view: Sequence[str] = (),
        earlier: Counted = NOTHING,
    ) -> tuple[Featuriser, dict[str, Any]]:
        """The featuriser of training examples, and their matrices, without counting again; of the
        blocks in a view alone, if one is given. `earlier` is what was counted before.
        """
        featuriser, counts = cls._fit(train, marks, most, view, earlier)
        if vectors is not None and not featuriser.pairs:
            featuriser.vectors = TextVectors.fit(vectors, [example.text for example in train])
        return featuriser, featuriser._weighed(train, counts)

    @classmethod
    def _fit(
        cls,
        train: Sequence[Example],
        marks: Sequence[str],
        most: int,
        view: Sequence[str] = (),
        earlier: Counted = NOTHING,
    ) -> tuple[Featuriser, dict[str, Any]]:
        """The featuriser, and the counts of its features; the texts of a pair are of one language,
        so they share their words.
        """
        pairs = len(train[0].texts) == 2
        texts = _texts_of(train, pairs)
        given: dict[str, tuple[Sequence[Any], Count]] = {
            "words": (texts, _counting(word_grams)),
            "letters": (texts, _count_letters),
        }
        if marks:
            tokens = functools.partial(mark_words, marks=marks)
            given["marks"] = ([example.text for example in train], _counting(tokens))
        if pairs:
            both = list(zip(texts[::2], texts[1::2], strict=True))
            given["shared"] = (both, _counting(shared_words))
        read = _read_by(view) or given.keys()
        keys, known = keys_of(train), earlier.with_marks(marks)
        counted, fitted = {}, {}
        for name in [name for name in given if name in read]:
            own, count = given[name]
            some = _some_for_letters(own) if name == "letters" and name not in known.blocks else own
            if len(some) == len(own):
                counted[name] = known.count(name, keys, own, count)
            fitted[name] = Block.of(*(counted.get(name) or count(some)), RAREST[name], most)
        blocks = {name: block for name, (block, _) in fitted.items()}
        featuriser = cls(blocks, marks, pairs, counted=Counted(keys, counted, tuple(marks)))
        return featuriser, {name: fitted[name][1] for name in counted}

    def narrowed(self, view: Sequence[str]) -> Featuriser:
        """The featuriser of the blocks in a view alone: others cost time and memory."""
        read, nothing = _read_by(view), Block([], np.zeros(0))
        blocks = {name: one if name in read else nothing for name, one in self.blocks.items()}
        vectors = self.vectors if "vectors" in view else None
        return Featuriser(blocks, self.marks, self.pairs, vectors, self.counted.narrowed(read))

    def parts(self, examples: Sequence[Example]) -> dict[str, Any]:
        """A sparse matrix of each block, with a row for each example; empty blocks are left out."""
        return self._weighed(examples, {})

    def _weighed(self, examples: Sequence[Example], counts: Mapping[str, Any]) -> dict[str, Any]:
        """The matrices of examples; `counts` are of blocks whose tokens were counted before."""
        texts = _texts_of(examples, self.pairs)
        number = 2 if self.pairs else 1
        sides = [texts[side::number] for side in range(number)]
        filled = {name for name, block in self.blocks.items() if block.tokens}
        parts = {}
        if filled.intersection(("words", "letters")):
            of_words, of_letters = self._of_texts(texts, number, counts)
            parts["words"] = joined(of_words)
            if self.pairs:
                cosines = [_cosines(one, other) for one, other in (of_words, of_letters)]
                parts["alike"] = similarities(sides[0], sides[1], self._idf, cosines)
            else:
                parts["letters"] = of_letters[0]
        if "shared" in filled:
            both = list(zip(sides[0], sides[1], strict=True))
            parts["shared"] = self._tfidf("shared", shared_words, both, counts)
        if "marks" in filled:
            whole = [example.text for example in examples]
            tokens = functools.partial(mark_words, marks=self.marks)
            parts["marks"] = self._tfidf("marks", tokens, whole, counts)
        if self.vectors is not None:
            parts["vectors"] = self.vectors.matrix(texts)
        return {name: matrix for name, matrix in parts.items() if matrix.shape[1]}

    def _of_texts(
        self, texts: Sequence[str], number: int, counts: Mapping[str, Any]
    ) -> tuple[list[Any], list[Any]]:
        """The matrices of words and of letters, one for each of the texts that examples have."""
        words, letters = self.blocks["words"], self.blocks["letters"]
        word_counts, letter_counts = counts.get("words"), counts.get("letters")
        if word_counts is None:
            grams = map(word_grams, texts if words.tokens else [""] * len(texts))
            word_counts = count_tokens(grams, words.columns)[1]
        if letter_counts is None:
            given = texts if letters.tokens else [""] * len(texts)
            letter_counts = _count_letters(given, letters.columns)[1]
        of_words = [words.tfidf(word_counts[side::number]) for side in range(number)]
        return of_words, [letters.tfidf(letter_counts[side::number]) for side in range(number)]

    def units(self, examples: Sequence[Example]) -> list[Unit]:
        """A unit without tokens for each row."""
        return [Unit([], [0], None, example=number) for number in range(len(examples))]

    def transform(self, examples: Sequence[Example]) -> Any:
        """One sparse matrix of all features, with a row for each example."""
        parts = self.parts(examples)
        if not parts:
            return _empty(len(examples), 0)
        return joined(list(parts.values()))

    def save(self, folder: Path) -> None:
        """Writes features.json, what the features are, and features.safetensors, their weights."""
        blocks = {name: block.tokens for name, block in self.blocks.items()}
        about = {"format": FORMAT, "marks": self.marks, "pairs": self.pairs, "blocks": blocks}
        # letters as they are: a reader of escapes has to look for halves of letters in each token
        text = json.dumps(about, ensure_ascii=False)
        write_text(folder / "features.json", f"{text}\n")
        weights = {name: block.idf for name, block in self.blocks.items()}
        write_bytes(folder / "features.safetensors", safetensors.numpy.save(weights))
        if self.vectors is not None:
            self.vectors.save(folder)

    @classmethod
    def load(cls, folder: Path) -> Featuriser:
        """The featuriser that `save` wrote."""
        file = folder / "features.json"
        about = of_format(file, FORMAT)
        weights = safetensors.numpy.load_file(require_regular(folder / "features.safetensors"))
        if not all(np.isfinite(idf).all() for idf in weights.values()):
            problem = f"{folder / 'features.safetensors'} has weights that are not finite numbers"
            raise RunError(f"{problem}. Rebuild it.")
        sizes = {name: len(set(tokens)) for name, tokens in about["blocks"].items()}
        if sizes != {name: len(idf) for name, idf in weights.items()}:
            problem = f"{file} and features.safetensors beside it have different features"
            raise RunError(f"{problem}. Rebuild them.")
        blocks = {name: Block(tokens, weights[name]) for name, tokens in about["blocks"].items()}
        return cls(blocks, about["marks"], about["pairs"], TextVectors.load(folder))

    def _tfidf(
        self, name: str, tokens: Tokens, given: Sequence[Any], counts: Mapping[str, Any]
    ) -> Any:
        """The matrix of a block, whose tokens may be counted already."""
        block, counted = self.blocks[name], counts.get(name)
        if counted is None:
            counted = count_tokens(map(tokens, given), block.columns)[1]
        return block.tfidf(counted)


def _read_by(view: Sequence[str]) -> set[str]:
    """The blocks that those of a view are computed from."""
    return set(view).union(*(READ_BY.get(name, ()) for name in view))


def word_grams(text: str) -> list[str]:
    """The words of a text and the pairs of neighbouring ones."""
    single = words(text)
    return single + bigrams(single)


def _texts_of(examples: Sequence[Example], pairs: bool) -> list[str]:
    """The text, or both texts, of each example; "" where one of a pair has no second text."""
    sides = 2 if pairs else 1
    texts: list[str] = []
    for example in examples:
        own = example.texts[:sides]
        texts += [*own, *[""] * (sides - len(own))]
    return texts


def evenly(items: Sequence[Any], most: int) -> list[Any]:
    """At most a given number of items, but at least one, spread evenly."""
    if len(items) <= most:
        return list(items)
    places = np.linspace(0, len(items) - 1, max(1, most)).round().astype(int)
    return [items[place] for place in places.tolist()]


def joined(matrices: Sequence[Any]) -> Any:
    """Sparse matrices side by side."""
    from scipy.sparse import hstack  # imported here so that reading and training do not wait for it

    return hstack(matrices, format="csr")


def count_tokens(
    rows: Iterable[Sequence[str]], known: Mapping[str, int] | None = None
) -> tuple[list[str], Any]:
    """The tokens of the columns, and a sparse matrix of how often each row has each token.

    These are the tokens that are known, whose columns are given, or else all, sorted by name.
    """
    from scipy.sparse import csr_matrix

    numbers: dict[str, int] = defaultdict(itertools.count().__next__)
    columns, ends = array("i"), array("q", [0])
    for row in rows:
        if known is None:
            columns.extend([numbers[token] for token in row])
        else:
            columns.extend([known[token] for token in row if token in known])
        ends.append(len(columns))
    tokens = sorted(numbers) if known is None else list(known)
    places = np.array(columns, np.int32)
    if known is None:
        rank = np.empty(len(tokens), np.int32)
        rank[[numbers[token] for token in tokens]] = np.arange(len(tokens))
        places = rank[places]
    each = np.ones(len(places), np.int64)
    matrix = csr_matrix((each, places, np.array(ends)), (len(ends) - 1, len(tokens)))
    matrix.sum_duplicates()
    matrix.sort_indices()
    return tokens, matrix


def _counting(tokens: Tokens) -> Count:
    """What counts tokens of this sort."""
    return lambda given: count_tokens(map(tokens, given))


def _some_for_letters(texts: Sequence[str]) -> Sequence[str]:
    """The texts whose letters are counted: evenly spread ones, if they have many long words."""
    different: set[str] = set()
    for text in texts:
        different.update(_between_spaces(text))
    size = sum(len(word) for word in different if len(word) > LONG)
    return evenly(texts, len(texts) * MOST_LONG // max(size, MOST_LONG))


def _count_letters(
    texts: Sequence[str], runs: Mapping[str, int] | None = None
) -> tuple[list[str], Any]:
    """Runs of letters between spaces, all of them or those given, and how often texts have them.

    The same words come again and again: the runs of each are counted once, and multiplied by how
    often a text has it.
    """
    different, in_texts = count_tokens(map(_between_spaces, texts))
    names, in_words = count_tokens(map(_runs_of, different), runs)
    return names, in_texts @ in_words


def _runs_of(word: str) -> list[str]:
    """The runs of letters of a word with a space on both sides."""
    spaced = f" {word} "
    runs: list[str] = []
    for size in range(SHORTEST, LONGEST + 1):
        runs += [spaced[start : start + size] for start in range(len(spaced) - size + 1)]
    return runs


def _between_spaces(text: str) -> list[str]:
    # lone surrogates, which JSON cannot store, become question marks
    return folded(text).encode("utf-8", "replace").decode().split()


def _cosines(one: Any, other: Any) -> Floats:
    return np.asarray(one.multiply(other).sum(1), np.float64).ravel()


def _empty(rows: int, columns: int) -> Any:
    from scipy.sparse import csr_matrix

    return csr_matrix((rows, columns))
