"""The features of the options of a choice for a linear model: one row per option."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tasklm.corpus.processes import processes_for
from tasklm.storage.files import write_text
from tasklm.storage.scratch import scratch_of_process
from tasklm.tasks.base import Floats, Unit
from tasklm.tasks.baselines.option_words import MEASURES, Evidence, option_tokens, stem_weights
from tasklm.tasks.examples import Example
from tasklm.tasks.saved import of_format

FORMAT = 1
MOST_TOKENS, MOST_STEMS = 50_000, 200_000
_WORTH_A_PROCESS = 2000  # examples: fewer are measured before a process has started
RARE = 3  # options that a token must occur in


class OptionFeatures:
    """Measures of how well an option fits its text and question, and the words of the option.

    An example has `together` rows, as many as any has options; those without an option are empty.
    """

    blocks = ("evidence", "tokens")

    def __init__(self, together: int, weights: dict[str, float], tokens: Sequence[str]) -> None:
        self.together, self.weights, self.tokens = together, weights, list(tokens)
        self._number = {token: column for column, token in enumerate(self.tokens)}

    @classmethod
    def fit(cls, train: Sequence[Example], together: int) -> OptionFeatures:
        """The features of training examples: the weights of their words, and the tokens of options
        that are not rare.
        """
        counts: Counter[str] = Counter()
        for example in train:
            for tokens in option_tokens(example):
                counts.update(set(tokens))
        common = sorted(counts, key=lambda token: (-counts[token], token))[:MOST_TOKENS]
        weights = stem_weights(train)
        lightest = sorted(weights, key=lambda stem: (weights[stem], stem))[:MOST_STEMS]
        stems = {stem: round(weights[stem], 4) for stem in sorted(lightest)}
        return cls(together, stems, sorted(token for token in common if counts[token] >= RARE))

    def parts(self, examples: Sequence[Example]) -> dict[str, Any]:
        """A matrix of each block, with a row for each option."""
        from scipy.sparse import csr_matrix

        measured = self._measures(examples)
        columns: list[int] = []
        ends = [0]
        for example in examples:
            each = option_tokens(example)
            for tokens in [*each, *([[]] * (self.together - len(each)))]:
                columns += sorted(
                    {self._number[token] for token in tokens if token in self._number}
                )
                ends.append(len(columns))
        rows = len(examples) * self.together
        present = (np.ones(len(columns)), np.array(columns, np.int64), np.array(ends))
        tokens_matrix = csr_matrix(present, shape=(rows, len(self.tokens)))
        measures = np.concatenate([np.zeros((0, MEASURES)), *measured])
        return {"evidence": csr_matrix(measures), "tokens": tokens_matrix}

    def units(self, examples: Sequence[Example]) -> list[Unit]:
        """A unit without tokens for each row."""
        rows = range(len(examples) * self.together)
        return [Unit([], [0], None, example=row // self.together) for row in rows]

    def _measures(self, examples: Sequence[Example]) -> list[Floats]:
        """The measures of all options; many examples are shared among processes."""
        from joblib import Parallel, delayed  # type: ignore[import-untyped]

        processes = processes_for(len(examples), _WORTH_A_PROCESS)
        size = max(1, -(-len(examples) // (4 * processes)))
        blocks = [examples[start : start + size] for start in range(0, len(examples), size)]
        results = Parallel(processes, temp_folder=scratch_of_process().folder)(
            delayed(_measure)(self.weights, block, self.together) for block in blocks
        )
        return list(itertools.chain.from_iterable(results))

    def save(self, folder: Path) -> None:
        """Writes options.json."""
        about = {
            "format": FORMAT,
            "together": self.together,
            "weights": self.weights,
            "tokens": self.tokens,
        }
        write_text(folder / "options.json", json.dumps(about, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, folder: Path) -> OptionFeatures:
        """The features that `save` wrote."""
        about = of_format(folder / "options.json", FORMAT)
        weights = {str(stem): float(weight) for stem, weight in about["weights"].items()}
        return cls(int(about["together"]), weights, [str(token) for token in about["tokens"]])


def _measure(weights: dict[str, float], examples: Sequence[Example], together: int) -> list[Floats]:
    evidence = Evidence(weights)
    return [_padded(evidence.measures(example), together) for example in examples]


def _padded(rows: Floats, count: int) -> Floats:
    return np.concatenate([rows, np.zeros((count - len(rows), rows.shape[1]))])
