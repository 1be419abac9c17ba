"""Pseudo-log-likelihood: how likely a language model finds a text, token by token, each given all
the others.

PLL(x) = Σ_t log p(x_t | the other tokens) (*BERT has a Mouth, and It Must Speak*, arXiv 1902.04094;
*Masked Language Model Scoring*, arXiv 1910.14659). Special tokens, including [UNK], are read but
not scored: no objective learns to predict them.

- `mlm`: every token is masked in turn, n passes for a text of n tokens. - `electric`: one pass; log
p̂ = −E, the energies (*Pre-Training Transformers as Energy-Based Cloze Models*, arXiv 2012.08561).
- `electra-tt`: one pass of the encoder and of both towers; p follows from the discriminator's D and
the towers' q, see `log_data`. - `bilm`: one pass; each token given those before it, and given those
after it: the mean of both log p, as in the objective (arXiv 1802.05365). No token is given both
sides at once. - `two-tower`: one pass of each tower; p is their softmax, given both sides.

A text longer than the model's rows is split into windows of nearly equal size, which are scored
separately and summed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from tasklm.console.progress import Bar
from tasklm.errors import RecipeError, RunError
from tasklm.models.language_model import LanguageModel
from tasklm.tokens.batches import TokenBatch, padded_rows

# of a pass: the towers' logits of all of them exist at once, 250 MB with BERT's vocabulary
TOKENS = 2048
AT_ONCE = 256  # texts whose windows are sorted by length together

Windows = list[list[int]]


@dataclass(frozen=True)
class Likelihood:
    """The score of one text."""

    tokens: list[int]  # numbers of the tokens that are scored
    scores: list[float]  # log p of each of them
    left_out: int  # special tokens in the text, such as [UNK]
    windows: int  # parts that the text was split into

    @property
    def total(self) -> float:
        """The pseudo-log-likelihood of the text."""
        return math.fsum(self.scores)

    @property
    def per_token(self) -> float | None:
        """The mean over its tokens; None if it has none."""
        if not self.scores:
            return None
        return self.total / len(self.scores)


class Scorer:
    """Scores texts with a language model whose objective yields probabilities of tokens."""

    def __init__(self, model: LanguageModel) -> None:
        name = model.settings.objective
        if name not in METHODS:
            problem = f"train.objective = {name!r} is not one that texts are scored with"
            way_out = f"train with one of {', '.join(METHODS)} to score texts"
            raise RecipeError([f"{problem}; {way_out}"])
        self.model, self.method = model, METHODS[name]

    def scored(self, texts: Sequence[str], bar: Bar | None = None) -> Iterator[Likelihood]:
        """Yields the score of each text, in order; a text without tokens has the sum 0."""
        for start in range(0, len(texts), AT_ONCE):
            block = texts[start : start + AT_ONCE]
            yield from self._block(block)
            if bar is not None:
                bar.advance(len(block))

    def _block(self, texts: Sequence[str]) -> Iterator[Likelihood]:
        cut = [
            windows_of(numbers, self.model.length - 2)
            for numbers in self.model.vocabulary.encode(texts)
        ]
        with torch.inference_mode():
            scored = self.method(self.model, list(chain.from_iterable(cut)))
        if not all(np.isfinite(scores).all() for scores in scored):
            raise RunError("the model's scores are not finite numbers. Train it again.")
        scores = iter(scored)
        specials = set(self.model.vocabulary.specials)
        for windows in cut:
            pairs: list[tuple[int, float]] = []
            for window in windows:
                pairs += zip(window, next(scores).tolist(), strict=True)
            scorable = [(token, score) for token, score in pairs if token not in specials]
            yield Likelihood(
                tokens=[token for token, _ in scorable],
                scores=[score for _, score in scorable],
                left_out=len(pairs) - len(scorable),
                windows=len(windows),
            )


def windows_of(numbers: list[int], most: int) -> Windows:
    """The tokens in as few parts of at most `most` as possible, of nearly equal size."""
    if not numbers:
        return []
    count = -(-len(numbers) // most)
    bounds = [len(numbers) * part // count for part in range(count + 1)]
    return [numbers[start:end] for start, end in pairwise(bounds)]


def _batches(model: LanguageModel, windows: Windows) -> Iterator[tuple[list[int], TokenBatch]]:
    """Yields all windows, longest first, as padded rows of [CLS] window [SEP], with their numbers;
    a pass has at most TOKENS tokens.
    """
    vocabulary = model.vocabulary
    order = sorted(range(len(windows)), key=lambda number: -len(windows[number]))
    while order:
        longest = len(windows[order[0]]) + 2
        rows = max(1, TOKENS // longest)
        numbers, order = order[:rows], order[rows:]
        tokens = [vocabulary.around(windows[number]) for number in numbers]
        yield numbers, padded_rows(tokens, vocabulary.pad).to(model.device)


def _in_one_pass(
    model: LanguageModel, windows: Windows, scores_of: Callable[[LanguageModel, TokenBatch], Tensor]
) -> list[np.ndarray]:
    """The score of every token of every window, from a function that scores a batch
    (rows, length).
    """
    by_window = [np.zeros(len(window)) for window in windows]
    for numbers, batch in _batches(model, windows):
        rows = scores_of(model, batch).double().cpu().numpy()
        for number, scores in zip(numbers, rows, strict=True):
            by_window[number][:] = scores[1 : len(windows[number]) + 1]
    return by_window


def by_energies(model: LanguageModel, windows: Windows) -> list[np.ndarray]:
    """The −E of every token (`electric`)."""
    return _in_one_pass(
        model, windows, lambda model, batch: -model.objective.energies(model.encoder, batch)
    )


def by_judgements(model: LanguageModel, windows: Windows) -> list[np.ndarray]:
    """The log p of every token from the encoder's judgements and the towers' q (`electra-tt`)."""

    def scores_of(model: LanguageModel, batch: TokenBatch) -> Tensor:
        replaced = model.objective.judgement(model.encoder(batch))
        return log_data(
            replaced,
            model.objective.generator.log_probabilities(model.encoder, batch),
            model.settings.mask_rate,
        )

    return _in_one_pass(model, windows, scores_of)


def by_directions(model: LanguageModel, windows: Windows) -> list[np.ndarray]:
    """The mean log p of every token, read from the left and from the right (`bilm`)."""

    def scores_of(model: LanguageModel, batch: TokenBatch) -> Tensor:
        right, left = model.encoder.directed(batch)
        scores = torch.zeros(batch.ids.shape, device=batch.ids.device)
        scores[:, 1:] += 0.5 * _log_p(model, right[:, :-1], batch.ids[:, 1:])
        scores[:, :-1] += 0.5 * _log_p(model, left[:, 1:], batch.ids[:, :-1])
        return scores

    return _in_one_pass(model, windows, scores_of)


def _log_p(model: LanguageModel, states: Tensor, tokens: Tensor) -> Tensor:
    """The log p of tokens (rows, length), each predicted from a state (rows, length, width)."""
    logits: Tensor = model.objective.logits(states.flatten(0, 1), model.encoder.token)
    scores = logits.float().log_softmax(-1).gather(1, tokens.reshape(-1, 1))
    return scores.view(tokens.shape)


def by_towers(model: LanguageModel, windows: Windows) -> list[np.ndarray]:
    """The log p of every token from the towers beside it (`two-tower`)."""
    return _in_one_pass(
        model, windows, lambda model, batch: model.objective.log_probabilities(model.encoder, batch)
    )


def log_data(replaced: Tensor, log_q: Tensor, rate: float) -> Tensor:
    """The log p of tokens in the data, from the logits of being replaced and the log q of being
    sampled.

    A position is sampled with probability `rate`, and a sample that equals the original token
    counts as data. A token is therefore data with mass (1 − rate)·p + rate·q·p and replaced with
    mass rate·q·(1 − p). With D the probability of data and c = rate / (1 − rate),

        p / (1 − p) = c·q·D / ((1 − D)·(1 + c·q)).

    Clark's thesis (section 5.4.5) has p = k·q·D / (n·(1 − D)), the first factors alone: that holds
    where every sample counts as replaced, as in Electric, and with n − k, the number of data
    tokens, for n. Applied to ELECTRA's judgements it yields odds, which can exceed 1.
    """
    odds = math.log(rate / (1.0 - rate))
    return functional.logsigmoid(odds + log_q - replaced - functional.softplus(odds + log_q))


def by_masking(model: LanguageModel, windows: Windows) -> list[np.ndarray]:
    """The log p of every token when only it is masked (`mlm`); special tokens are not masked and
    get 0.
    """
    specials = set(model.vocabulary.specials)
    masked: list[tuple[int, int]] = []  # windows and the positions in them, one by one
    for number, window in enumerate(windows):
        masked += [(number, at) for at, token in enumerate(window) if token not in specials]
    by_window = [np.zeros(len(window)) for window in windows]
    for places, batch in _batches(model, [windows[number] for number, _ in masked]):
        rows = torch.arange(len(places))
        columns = torch.tensor([masked[place][1] + 1 for place in places])
        answers, ids = batch.ids[rows, columns], batch.ids.clone()
        ids[rows, columns] = model.vocabulary.mask
        wanted = (rows * ids.shape[1] + columns).to(model.device)
        logits = model.objective.logits(
            model.encoder(replace(batch, ids=ids), wanted), model.encoder.token
        )
        scores = logits.float().log_softmax(-1).gather(1, answers[:, None]).squeeze(1).tolist()
        for place, score in zip(places, scores, strict=True):
            number, at = masked[place]
            by_window[number][at] = score
    return by_window


METHODS: dict[str, Callable[[LanguageModel, Windows], list[np.ndarray]]] = {
    "electric": by_energies,
    "electra-tt": by_judgements,
    "mlm": by_masking,
    "bilm": by_directions,
    "two-tower": by_towers,
}
